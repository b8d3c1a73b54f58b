"""Is the public port really served? Asked by a request of our own, on the loop.

Over TLS the question is asked as any client would, except that the certificate is not checked: it names the port's public
name, which this machine need not know. OpenSSL gets its bytes through buffers, so that nothing here waits.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from llamad.daemon.kernel import Kernel
from llamad.daemon.listeners import Listener
from llamad.daemon.loop import Loop
from llamad.daemon.stream import Stream

ANSWER_WITHIN_S = 5.0
RETRY_AFTER_S = 0.1
ANSWER_BYTES_MAX = 16 * 1024

_REQUEST = b"GET /health HTTP/1.1\r\nHost: llamad\r\nConnection: close\r\n\r\n"
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Codec(Protocol):
    """The bytes of one connection between the wire and us."""

    def send(self, data: bytes) -> bytes:
        """What to put on the wire when we say `data`."""
        ...

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """What the wire's `data` says to us, and what it has to be answered with."""
        ...


class Plain:
    """No TLS."""

    def send(self, data: bytes) -> bytes:
        return data

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        return data, b""


class Tls:
    """A client's end of TLS. A broken handshake says nothing more, and the probe's patience ends it."""

    def __init__(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)
        self._unsent = b""
        self._shaken = False

    def send(self, data: bytes) -> bytes:
        self._unsent += data
        return self._go_on()

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        self._in.write(data)
        answer = self._go_on()
        heard = bytearray()
        try:
            while self._shaken and (piece := self._tls.read(ANSWER_BYTES_MAX)):
                heard += piece
        except ssl.SSLError:
            pass  # no more for now, or for ever
        return bytes(heard), answer

    def _go_on(self) -> bytes:
        try:
            if not self._shaken:
                self._tls.do_handshake()
                self._shaken = True
            if self._unsent:
                self._tls.write(self._unsent)
                self._unsent = b""
        except ssl.SSLError:
            pass
        return self._out.read()


class HealthProbe:
    """Asks `GET /health` until it is answered with 200, then calls `on_answered` once."""

    def __init__(
        self,
        loop: Loop,
        kernel: Kernel,
        listener: Listener,
        on_answered: Callable[[], None],
        *,
        tls: bool = False,
    ) -> None:
        self._new_codec: Callable[[], Codec] = Tls if tls else Plain
        self._codec: Codec = Plain()
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
        self._codec = self._new_codec()
        stream.send(self._codec.send(_REQUEST))

    def _address(self) -> str | tuple[str, int]:
        address = self._listener.socket.getsockname()
        if self._listener.socket.family == socket.AF_UNIX:
            return str(address)
        return _WILDCARDS.get(address[0], address[0]), address[1]

    def _received(self, data: bytes) -> None:
        heard, answer = self._codec.receive(data)
        self._answer += heard
        if answer and self._stream is not None:
            self._stream.send(answer)
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
