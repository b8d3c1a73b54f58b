"""gunicorn's end of a client's connection, with what a front for long streams needs otherwise.

Each override names the behaviour of gunicorn 27.0 that it replaces; tests/process/test_proxy_worker.py guards them, as
most touch names that gunicorn does not promise:

* a streaming answer's head goes out at once, not together with the first chunk (which may be a minute away), and its
  body may take the short way (`sink`);
* a connection that is closed while its client still sends gets a moment in which the client can read why;
* a request of HTTP/1.1 says what host it is for (RFC 9112, section 3.2), as nginx demands too;
* refusals of the HTTP layer are JSON and have an id; a connection has a time limit for its first head too, and for each
  body as a whole; there is a limit on connections, at which those that idle give way;
* a call is a part of its connection's task, as nothing of ours goes on after its answer;
* WebSockets learn when the worker is to go.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from gunicorn.asgi.parser import ParseError
from gunicorn.asgi.protocol import ASGIProtocol

from llamad.errors import error_body
from llamad.proxy.heads import request_id_of
from llamad.proxy.sink import SINK, Sink
from llamad.proxy.websocket import DRAINING

if TYPE_CHECKING:
    from llamad.proxy.worker import FrontWorker

# A connection that was accepted just before a drain gets this long to send its first request.
FIRST_REQUEST_S = 2.0
LINGER_S = 2.0
LINGERS_MAX = 8
# RFC 3986, section 3.2.2, or nothing, and a port.
_HOST = re.compile(rb"[\w.~!$&'()*+,;=:%\[\]-]*", re.ASCII)

_KIND_BY_STATUS = {
    400: "bad-http",
    414: "url-too-long",
    431: "headers-too-large",
    501: "bad-http",
    503: "too-many-connections",
}


class FrontProtocol(ASGIProtocol):  # type: ignore[misc]
    """One client connection."""

    _closed: bool
    _response_buffer: bytes | None

    def __init__(self, worker: FrontWorker) -> None:
        super().__init__(worker)
        self._accepted_at = worker.loop.time()
        self._refused = False
        self._linger: asyncio.TimerHandle | None = None
        self._lingers = 0
        self._still_sends = False
        self._body_limit: asyncio.TimerHandle | None = None
        self._sink = Sink(self._write_chunk, self._write_framed, self._cut)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.worker.connections[self] = None
        self.worker.ebb.rose(len(self.worker.connections))
        if self.worker.nr_conns > self.worker.connections_max and not self.worker.make_room():
            self._send_error_response(503, f"over {self.worker.connections_max} connections")
            self._keepalive_timeout()
            return
        self._arm_keepalive_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self.worker.connections.pop(self, None)
        if self._linger is not None:
            self._linger.cancel()
        self._end_body_limit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._still_sends = True
        super().data_received(data)
        receiver = self._body_receiver
        if receiver is not None and not receiver._complete and self._body_limit is None:
            self._begin_body_limit()

    def _begin_body_limit(self) -> None:
        """A body may trickle for so long, and then its handler is told that no more comes."""
        limit_s = self.worker.app.settings.body_timeout_s
        if limit_s and not self._closed:
            self._body_limit = self.worker.loop.call_later(limit_s, self._body_is_late)

    def _end_body_limit(self) -> None:
        if self._body_limit is not None:
            self._body_limit.cancel()
            self._body_limit = None

    def _on_headers_complete(self) -> bool:
        skips_body: bool = super()._on_headers_complete()
        check_host(self._current_request)
        return skips_body

    def _on_message_complete(self) -> None:
        self._end_body_limit()
        super()._on_message_complete()

    def _body_is_late(self) -> None:
        receiver = self._body_receiver
        if receiver is not None and not receiver._complete:
            receiver._body_wait_expired = True
            receiver._wake_waiter()

    @property
    def idle(self) -> bool:
        """Whether it only waits for a request, of which some may have come."""
        return self._awaiting_request and not self._closed

    def close_if_idle(self) -> None:
        """Close it for a drain."""
        new = self.req_count == 1 and self.worker.loop.time() - self._accepted_at < FIRST_REQUEST_S
        if self.idle and not new:
            self._keepalive_timeout()

    def close_idle(self) -> None:
        """Make room for others, which the caller has found it to be in a state for."""
        self._keepalive_timeout()

    async def _serve_http_request(self, request: Any, sockname: Any, peername: Any) -> Any:
        return await self._handle_http_request(request, sockname, peername)

    def _send_response_start(self, status: int, headers: Any, request: Any, close: bool = False) -> None:
        super()._send_response_start(status, headers, request, close=close)
        names = {name.lower() for name, _ in headers}
        if b"content-length" not in names:
            self._safe_write(self._response_buffer)
            self._response_buffer = None
        self._sink.open = b"transfer-encoding" in names

    def _write_chunk(self, chunk: bytes) -> None:
        if not self._closed:
            self._send_body(chunk, True)

    def _write_framed(self, chunks: bytes) -> None:
        # Most of what a front does. A transport that is at its end, of which we have not heard, takes nothing.
        if not self._closed and not self.transport.is_closing():
            self.transport.write(chunks)

    def _cut(self) -> None:
        self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sink.full()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._sink.drained()

    def _send_error_response(
        self, status: int, message: str, extra_headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        if self._refused or self._closed:
            return  # A call that is told of the end answers it, too, and within TLS that would still go out.
        self._refused = True
        kind = _KIND_BY_STATUS.get(status, "internal" if status >= 500 else "bad-http")
        body = msgspec.json.encode(error_body(kind, status, f"cannot take the request: {message}"))
        reason = self._get_reason_phrase(status)
        extra = "".join(f"{name}: {value}\r\n" for name, value in extra_headers)
        head = (
            f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{extra}x-request-id: {request_id_of(None)}\r\nconnection: close\r\n\r\n"
        )
        self._safe_write(head.encode("latin-1") + body)

    def _close_transport(self) -> None:
        """Close; but when the client may still be sending, first only our half.

        Closing a socket with unread bytes resets it, and the reset may overtake the answer that says why.
        """
        receiver = self._body_receiver
        unread = receiver is not None and not receiver._complete
        if self._closed or not (unread or self._refused):
            super()._close_transport()
            return
        self._closed = True
        self._callback_parser = None  # what still comes is dropped
        self._resume_reading()
        # TLS has no half to close; there the length of the answer has to do.
        if self.transport.can_write_eof():
            with contextlib.suppress(OSError, RuntimeError):
                self.transport.write_eof()
        self._linger_on()

    def _linger_on(self) -> None:
        """As long as it sends, within bounds: it reads when it has done so."""
        self._lingers += 1
        self._still_sends = False
        self._linger = self.worker.loop.call_later(LINGER_S, self._end_linger)

    def _end_linger(self) -> None:
        if self._still_sends and self._lingers < LINGERS_MAX:
            self._linger_on()
        else:
            self.transport.abort()

    def _build_http_scope(self, request: Any, sockname: Any, peername: Any) -> Any:
        scope = super()._build_http_scope(request, sockname, peername)
        self._sink.open = False
        scope[SINK] = self._sink
        self.worker.connections[self] = self.worker.connections.pop(self, None)
        return scope

    def _build_websocket_scope(self, request: Any, sockname: Any, peername: Any) -> Any:
        scope = super()._build_websocket_scope(request, sockname, peername)
        scope[DRAINING] = self.worker.draining
        return scope


def check_host(request: Any) -> None:
    """Raises gunicorn's ParseError, which is answered with a 400. Two of them gunicorn has refused already."""
    for name, value in request.headers_bytes:
        if name == b"host":
            if not _HOST.fullmatch(value):
                raise ParseError("its Host is none")
            return
    if request.version >= (1, 1):
        raise ParseError("it has no Host, which HTTP/1.1 demands")
