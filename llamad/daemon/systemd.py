"""What systemd tells a service and wants to hear from it: sockets handed over, readiness, reloads, the watchdog.

Protocols: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3). Without systemd all of this does nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

from llamad.daemon.loop import Loop

log = logging.getLogger(__name__)

LISTEN_FDS_START = 3


def listen_sockets(environ: Mapping[str, str], pid: int) -> list[tuple[str, socket.socket]]:
    """(name, listening socket) of each socket that was handed over to process `pid`; the name is "" when none was given."""
    if environ.get("LISTEN_PID") != str(pid):
        return []
    try:
        count = int(environ.get("LISTEN_FDS", "0"))
    except ValueError:
        return []
    names = environ.get("LISTEN_FDNAMES", "").split(":") if environ.get("LISTEN_FDNAMES") else []
    sockets = []
    for index in range(count):
        fd = LISTEN_FDS_START + index
        os.set_inheritable(fd, False)
        listener = socket.socket(fileno=fd)
        listener.setblocking(False)
        sockets.append((names[index] if index < len(names) else "", listener))
    return sockets


class Notifier:
    """Says things on `$NOTIFY_SOCKET`. A message that systemd does not take is dropped with a log line."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._path = environ.get("NOTIFY_SOCKET", "")
        self._socket: socket.socket | None = None
        if self._path.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nMAINPID={os.getpid()}\nSTATUS={status}")

    def reloading(self) -> None:
        """Must be followed by `ready`."""
        usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={usec}")

    def stopping(self, status: str) -> None:
        self._send(f"STOPPING=1\nSTATUS={status}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        try:
            self._socket.sendto(text.encode(), address)
        except OSError as error:
            log.warning("cannot notify systemd: %s", error)


def watchdog_interval_s(environ: Mapping[str, str], pid: int) -> float | None:
    """Half of what systemd demands, or None when it watches somebody else or nobody."""
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    try:
        usec = int(environ.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return usec / 2e6 if usec > 0 else None


class Watchdog:
    """Pets the watchdog from the loop: as long as timers fire, the daemon lives."""

    def __init__(self, loop: Loop, notifier: Notifier, interval_s: float) -> None:
        self._loop = loop
        self._notifier = notifier
        self._interval_s = interval_s
        self._pet()

    def _pet(self) -> None:
        self._notifier.watchdog()
        self._loop.call_later(self._interval_s, self._pet)
