"""`python -m llamad child`: from an empty process to a role.

The order matters. First stdout is put out of reach of everything that prints, then the process is tied to its parent's
life, then it reads what it is to be, and only then does it import what that takes.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import traceback
from typing import Any

from llamad.child.link import Link
from llamad.errors import LlamadError, OutOfMemoryError, ProtocolError
from llamad.exit_status import EXIT_INTERNAL
from llamad.wire.child import EXIT_OUT_OF_MEMORY, Start, State

EXIT_DONE = 0
EXIT_FAILED = 1
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve one role and return the exit status: 0 done, 1 failed and 71 no memory (and said why), 70 a bug."""
    parent = os.getppid()
    link = Link(commands=0, reports=reserve_stdout())
    die_with_parent(parent)
    try:
        start = link.start()
    except ProtocolError as error:
        return _fail(link, error)
    if start is None:
        return EXIT_DONE
    link.listen()
    try:
        return _run(link, start)
    except LlamadError as error:
        return _fail(link, error)
    except MemoryError as error:
        return _fail(link, _out_of_memory(error))
    except Exception as error:  # noqa: BLE001 - Python's own status would read as a failure that was told
        link.send(
            State("failed", {"kind": "internal", "message": f"cannot go on: {type(error).__name__}: {error}"})
        )
        traceback.print_exc()
        return EXIT_INTERNAL


def reserve_stdout() -> int:
    """Keep the real stdout for reports, and let everything that is printed go to stderr. Returns its descriptor."""
    reports = os.dup(1)
    os.dup2(2, 1)
    return reports


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (prctl(2)), or leave if that has happened already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        print(f"cannot tie this process to its parent: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
    if os.getppid() != parent:
        os._exit(EXIT_FAILED)


def _run(link: Link, start: Start) -> int:
    body: dict[str, Any] = start.body
    match start.role:
        case "instance":
            from llamad.child.instance import run as run_instance

            return run_instance(link, body)
        case "measure":
            from llamad.child import measure

            return measure.run(link, body)
        case "scan":
            from llamad.child.scan import run as run_scan

            return run_scan(link, body)
        case _:
            raise LlamadError(f"cannot be {start.role[:40]!r}: no such role", kind="unknown-role")


def _out_of_memory(error: MemoryError) -> OutOfMemoryError:
    """An allocation that Python itself was refused, mostly without a word."""
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    words = f": {error}" if str(error) else ""
    return OutOfMemoryError(f"cannot go on: out of memory, with {peak_mib:.0f} MiB in use{words}")


def _fail(link: Link, error: LlamadError) -> int:
    print(error.message, file=sys.stderr)
    link.send(State("failed", {"kind": error.kind, "message": error.message}))
    return EXIT_OUT_OF_MEMORY if isinstance(error, OutOfMemoryError) else EXIT_FAILED
