"""Accepting connections, and moving their bytes: what the lease server and the admin server have in common."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from llamad.daemon.kernel import Kernel
from llamad.daemon.loop import Loop

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
ACCEPTS_A_PASS_MAX = 64
ACCEPT_PAUSE_S = 0.5


class Acceptor:
    """Hands over the connections of one listening socket.

    Out of descriptors or memory it pauses: the listener stays readable then, and would spin the loop.
    """

    def __init__(
        self,
        loop: Loop,
        kernel: Kernel,
        listener: socket.socket,
        on_connection: Callable[[socket.socket], None],
    ) -> None:
        self._loop = loop
        self._kernel = kernel
        self._listener = listener
        self._on_connection = on_connection
        self._closed = False
        self._watch()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.unwatch(self._listener.fileno())
            self._listener.close()

    def _watch(self) -> None:
        if not self._closed:
            self._loop.watch(self._listener.fileno(), readable=self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_PASS_MAX):
            try:
                connection = self._kernel.accept(self._listener)
            except OSError as error:
                log.warning("cannot accept a connection, trying again in %s s: %s", ACCEPT_PAUSE_S, error)
                self._loop.unwatch(self._listener.fileno())
                self._loop.call_later(ACCEPT_PAUSE_S, self._watch)
                return
            if connection is None:
                return
            self._on_connection(connection)
            if self._closed:
                return


class Stream:
    """One connection with a bounded output buffer. Small writes of one pass go out together.

    `on_data(bytes)` and then, exactly once, `on_end(reason)`: "" for the peer's end of file or our own close, else why it
    was dropped. A peer that lets `unsent_bytes_max` pile up is dropped.
    """

    def __init__(
        self,
        loop: Loop,
        kernel: Kernel,
        connection: socket.socket,
        unsent_bytes_max: int,
        *,
        on_data: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._kernel = kernel
        self._connection = connection
        self._unsent = bytearray()
        self._unsent_bytes_max = unsent_bytes_max
        self._on_data = on_data
        self._on_end = on_end
        self._closing = False
        self._flush_due = False
        self._reading = True
        self.closed = False
        self._watch()

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def send(self, data: bytes) -> None:
        if self.closed or self._closing:
            return
        if len(self._unsent) + len(data) > self._unsent_bytes_max:
            self.close(f"left {len(self._unsent)} bytes unread")
            return
        self._unsent += data
        if not self._flush_due:
            self._flush_due = True
            self._loop.before_sleep(self._flush)

    def pause_reading(self) -> None:
        """What the peer sends waits in its own buffers. Its end is noticed only after `resume_reading`."""
        self._reading = False
        self._watch()

    def resume_reading(self) -> None:
        self._reading = True
        self._watch()

    def close_when_sent(self) -> None:
        """No more reading; close after the last byte is taken."""
        self._closing = True
        self.pause_reading()
        if not self._unsent:
            self.close()

    def close(self, reason: str = "") -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.unwatch(self._connection.fileno())
        self._connection.close()
        self._unsent.clear()
        self._on_end(reason)

    def _watch(self) -> None:
        if not self.closed:
            self._loop.watch(
                self._connection.fileno(),
                readable=self._read if self._reading else None,
                writable=self._flush if self._unsent and not self._flush_due else None,
            )

    def _read(self) -> None:
        try:
            data = self._kernel.recv(self._connection, READ_BYTES)
        except OSError as error:
            self.close(str(error))
            return
        if data:
            self._on_data(data)
        elif data is not None:
            self.close()

    def _flush(self) -> None:
        self._flush_due = False
        if self.closed:
            return
        try:
            while self._unsent and (
                taken := self._kernel.send(self._connection, bytes(self._unsent[:READ_BYTES]))
            ):
                del self._unsent[:taken]
        except OSError as error:
            self.close(str(error))
            return
        if self._closing and not self._unsent:
            self.close()
        else:
            self._watch()
