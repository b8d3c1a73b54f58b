"""Is the public port really served? Asked by a request of our own, on the loop."""

from __future__ import annotations

import socket
from collections.abc import Callable

from llamad.daemon.kernel import Kernel
from llamad.daemon.listeners import Listener
from llamad.daemon.loop import Loop
from llamad.daemon.stream import Stream

ANSWER_WITHIN_S = 5.0
RETRY_AFTER_S = 0.1
ANSWER_BYTES_MAX = 16 * 1024

_REQUEST = b"GET /health HTTP/1.1\r\nHost: llamad\r\nConnection: close\r\n\r\n"
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class HealthProbe:
    """Asks `GET /health` until it is answered with 200, then calls `on_answered` once."""

    def __init__(
        self, loop: Loop, kernel: Kernel, listener: Listener, on_answered: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._kernel = kernel
        self._listener = listener
        self._on_answered = on_answered
        self._answer = bytearray()
        self._stream: Stream | None = None
        self._stopped = False
        self._ask()

    def stop(self) -> None:
        self._stopped = True
        if self._stream is not None:
            self._stream.close()

    def _ask(self) -> None:
        if self._stopped:
            return
        self._answer.clear()
        try:
            connection = self._kernel.connect(self._listener.socket.family, self._address())
        except OSError:
            self._loop.call_later(RETRY_AFTER_S, self._ask)
            return
        stream = Stream(
            self._loop, self._kernel, connection, ANSWER_BYTES_MAX, on_data=self._received, on_end=self._ended
        )
        self._stream = stream
        self._give_up = self._loop.call_later(ANSWER_WITHIN_S, stream.close)
        stream.send(_REQUEST)

    def _address(self) -> str | tuple[str, int]:
        address = self._listener.socket.getsockname()
        if self._listener.socket.family == socket.AF_UNIX:
            return str(address)
        return _WILDCARDS.get(address[0], address[0]), address[1]

    def _received(self, data: bytes) -> None:
        self._answer += data
        if len(self._answer) > ANSWER_BYTES_MAX and self._stream is not None:
            self._stream.close("answered with too much")

    def _ended(self, reason: str) -> None:
        self._give_up.cancel()
        self._stream = None
        if self._stopped:
            return
        status = bytes(self._answer[:32]).split(b" ", 2)
        if len(status) > 1 and status[0].startswith(b"HTTP/1.") and status[1] == b"200":
            self._stopped = True
            self._on_answered()
        else:
            self._loop.call_later(RETRY_AFTER_S, self._ask)
