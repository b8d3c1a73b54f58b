"""Reading files: whole, bounded, settled, and with a message that says which path and which user.

A configuration file that somebody is still writing must not be applied. What is visible of that is that the file changes while it
is read, that it changed a moment ago, or that its last line has no end. So `read_settled` takes a file only when it
has been quiet for `QUIET_S` (longer without a newline at its end, which an editor may well leave out) and was the
same before and after the read, and gives up after `WAIT_S`. A file without a single byte is taken for one that was cut
short, by a full disk or by an editor between truncating and writing: it would take every model away, or every key. A writer who pauses for longer between two halves cannot be told from
one who is done; renaming a complete file into place is always safe.
"""

from __future__ import annotations

import os
import pwd
import stat
import time
from collections.abc import Callable
from typing import BinaryIO

QUIET_S = 0.3
QUIET_OPEN_END_S = 1.0
WAIT_S = 5.0
STEP_S = 0.05


def open_regular(path: str) -> BinaryIO:
    """Open a regular file for reading. OSError as usual; ValueError (the reason) when it is something else."""
    # Non-blocking, because opening a pipe that nobody writes to would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise ValueError("it is a directory" if stat.S_ISDIR(mode) else "it is no regular file")


def read_whole(path: str, limit_bytes: int) -> bytes:
    """All bytes of a file, none of /dev/null. ValueError (the reason) if there are over `limit_bytes`."""
    if path == os.devnull:
        return b""
    with open_regular(path) as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ValueError(f"it has over {limit_bytes} bytes")
    return data


def read_settled(
    path: str,
    limit_bytes: int,
    *,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> bytes:
    """All bytes of a file that nobody seems to be writing to. ValueError (the reason) if there is no such moment."""
    waited = 0.0
    while True:
        before = _stamp(path)
        data = read_whole(path, limit_bytes)
        quiet_s = QUIET_S if data.endswith(b"\n") else QUIET_OPEN_END_S
        # A time stamp from the future says nothing; then only the comparison counts.
        age_s = now() - before[0] / 1e9
        if before == _stamp(path) and (age_s >= quiet_s or age_s < -1.0):
            if not data and path != os.devnull:
                raise ValueError(
                    "it is empty, as if it had been cut short (one that is meant to say nothing needs a comment)"
                )
            return data
        if waited >= WAIT_S:
            raise ValueError(f"it is still being written after {WAIT_S:g} s")
        sleep(STEP_S)
        waited += STEP_S


def _stamp(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


def why(error: OSError, what: str) -> str:
    """`cannot read '/x' as user 'llamad': permission denied`."""
    reason = (error.strerror or str(error)).lower()
    return f"cannot read {what} as user '{user_name()}': {reason}"


def user_name() -> str:
    """Who this process reads files as."""
    user = os.geteuid()
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def absolute(path: str) -> str:
    """`~/` and relative paths (from the daemon's working directory, as in llama-server) made absolute."""
    return os.path.abspath(os.path.expanduser(path))
