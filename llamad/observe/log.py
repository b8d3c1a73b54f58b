"""Log set-up: lines on stderr, in journald's form when journald reads them.

A log line must never stop its process: before each write stderr is asked whether it has room, and a line that finds none is
dropped and counted. Lines are cut to a page, which a pipe with room takes whole.
"""

from __future__ import annotations

import logging
import os
import re
import select
import time
from collections.abc import Mapping
from typing import Final

from llamad.observe.ring import LineRing

LEVELS: Final = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}

_LINE_BYTES_MAX = 4000
_OWN_LINE = re.compile(r"\d\d:\d\d:\d\d (\w+) +(.*)")
_SYSLOG_PRIORITY = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}


def set_up(level: str, environ: Mapping[str, str], ring: LineRing | None = None) -> None:
    """Send all of `llamad`'s log records to stderr, and into `ring` where one is given.

    `level` is one of `LEVELS`; records of other libraries show from warning on.
    """
    handlers: list[logging.Handler] = [StderrHandler(journald=is_journald(2, environ))]
    if ring is not None:
        handlers.append(RingHandler(ring))
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(logging.WARNING)
    set_level(level)


def set_level(level: str) -> None:
    """How much `llamad`'s own loggers say from now on, one of `LEVELS`."""
    logging.getLogger("llamad").setLevel(LEVELS.get(level, logging.INFO))


def relay(logger: logging.Logger, source: str, line: str) -> None:
    """Log a line that a process of ours has written by `set_up`'s rules, at the level that it has there."""
    match = _OWN_LINE.fullmatch(line)
    level, text = (LEVELS.get(match[1], logging.INFO), match[2]) if match else (logging.INFO, line)
    if text.strip():
        logger.log(level, "%s: %s", source, text)


def is_journald(fd: int, environ: Mapping[str, str]) -> bool:
    """Whether `fd` is the stream that journald handed to this unit (`JOURNAL_STREAM=device:inode`, systemd.exec(5))."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return (device, inode) == (str(status.st_dev), str(status.st_ino))


class LineFormatter(logging.Formatter):
    """`12:00:01 warning cannot ...` for people, `<4>cannot ...` on each line for journald (sd-daemon(3))."""

    def __init__(self, *, journald: bool) -> None:
        super().__init__()
        self._journald = journald

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if self._journald:
            prefix = f"<{_SYSLOG_PRIORITY.get(record.levelno, 6)}>"
            return "\n".join(prefix + line for line in text.split("\n"))
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{clock} {record.levelname.lower():7} {text}"


class StderrHandler(logging.Handler):
    """Writes where there is room, counts what it had to drop."""

    def __init__(self, *, journald: bool, fd: int = 2) -> None:
        super().__init__()
        self.setFormatter(LineFormatter(journald=journald))
        self._fd = fd
        self._dropped = 0
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            data = self.format(record).encode("utf-8", "backslashreplace")[:_LINE_BYTES_MAX] + b"\n"
            if not self._has_room():
                self._dropped += 1
                return
            if self._dropped:
                data = f"({self._dropped} log lines dropped: nobody read them)\n".encode() + data
                self._dropped = 0
            os.write(self._fd, data)
        except (OSError, ValueError, TypeError):
            self._dropped += 1

    def _has_room(self) -> bool:
        return any(event & select.POLLOUT for _, event in self._poll.poll(0))


class RingHandler(logging.Handler):
    """Keeps the last lines for the admin socket."""

    def __init__(self, ring: LineRing) -> None:
        super().__init__()
        self.setFormatter(LineFormatter(journald=False))
        self._ring = ring

    def emit(self, record: logging.LogRecord) -> None:
        for line in self.format(record)[:_LINE_BYTES_MAX].split("\n"):
            self._ring.append(line)
