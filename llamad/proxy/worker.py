"""gunicorn's ASGI worker, with what a front for long streams needs otherwise.

Each override names the behaviour of gunicorn 27.0 that it replaces; tests/process/test_proxy_worker.py guards them, as
most touch names that gunicorn does not promise:

* a streaming answer's head goes out at once, not together with the first chunk (which may be a minute away);
* a signal that comes before the loop runs ends the process; uvloop would swallow it;
* a signal ends the main loop's one-second nap;
* a draining worker says that it is alive, and closes the connections that idle, so that neither the arbiter's patience
  nor a client's keep-alive pool decides how long a drain takes;
* a connection that is closed while its client still sends gets a moment in which the client can read why;
* refusals of the HTTP layer are JSON; a connection has a time limit for its first head too; there is a limit on
  connections;
* WebSockets are ours (`client_socket`), and learn when the worker is to go;
* with TLS a certificate that cannot be used ends the worker, where gunicorn would serve without TLS on the same port; a
  renewed one counts from the next handshake on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import ssl
from collections.abc import Iterable
from typing import Any

import msgspec
from gunicorn.arbiter import Arbiter
from gunicorn.asgi import websocket
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers import gasgi

from llamad.errors import error_body
from llamad.proxy.certificate import Certificate
from llamad.proxy.client_socket import ClientSocket
from llamad.proxy.process import die_with_parent, set_title
from llamad.proxy.sink import SINK, Sink
from llamad.proxy.websocket import DRAINING

log = logging.getLogger(__name__)

STOP_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT))
DRAIN_BEAT_S = 0.25
# A connection that was accepted just before a drain gets this long to send its first request.
FIRST_REQUEST_S = 2.0
LINGER_S = 2.0
BACKLOG = 2048

_KIND_BY_STATUS = {
    400: "bad-http",
    414: "url-too-long",
    431: "headers-too-large",
    501: "bad-http",
    503: "too-many-connections",
}


class FrontProtocol(ASGIProtocol):  # type: ignore[misc]
    """One client connection."""

    def __init__(self, worker: FrontWorker) -> None:
        super().__init__(worker)
        self._accepted_at = worker.loop.time()
        self._refused = False
        self._linger: asyncio.TimerHandle | None = None
        self._sink = Sink(self._write_chunk, self._write_framed)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.worker.connections.add(self)
        if self.worker.nr_conns > self.worker.connections_max:
            self._send_error_response(503, f"over {self.worker.connections_max} connections")
            self._keepalive_timeout()
            return
        self._arm_keepalive_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self.worker.connections.discard(self)
        if self._linger is not None:
            self._linger.cancel()
        super().connection_lost(exc)

    def close_if_idle(self) -> None:
        """Close a connection that only waits for a request."""
        idle = self._awaiting_request and not self._finishing_calls
        new = self.req_count == 1 and self.worker.loop.time() - self._accepted_at < FIRST_REQUEST_S
        if idle and not new:
            self._keepalive_timeout()

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
        if not self._closed:
            self._safe_write(chunks)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sink.full()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._sink.drained()

    def _send_error_response(
        self, status: int, message: str, extra_headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        self._refused = True
        kind = _KIND_BY_STATUS.get(status, "internal" if status >= 500 else "bad-http")
        body = msgspec.json.encode(error_body(kind, status, f"cannot take the request: {message}"))
        reason = self._get_reason_phrase(status)
        extra = "".join(f"{name}: {value}\r\n" for name, value in extra_headers)
        head = (
            f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{extra}connection: close\r\n\r\n"
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
        self._linger = self.worker.loop.call_later(LINGER_S, self.transport.abort)

    def _build_http_scope(self, request: Any, sockname: Any, peername: Any) -> Any:
        scope = super()._build_http_scope(request, sockname, peername)
        self._sink.open = False
        scope[SINK] = self._sink
        return scope

    def _build_websocket_scope(self, request: Any, sockname: Any, peername: Any) -> Any:
        scope = super()._build_websocket_scope(request, sockname, peername)
        scope[DRAINING] = self.worker.draining
        return scope


class FrontWorker(gasgi.ASGIWorker):  # type: ignore[misc]
    """One worker process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connections: set[FrontProtocol] = set()
        self.connections_max = self.app.connections_max
        self._main: asyncio.Task[None] | None = None
        self._napping = False
        self._draining = False
        self._deep = False
        self.draining = asyncio.Event()

    def init_process(self) -> None:
        set_title(f"worker {self.age}")
        for stop in STOP_SIGNALS:
            signal.signal(stop, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        die_with_parent(self.ppid, signal.SIGTERM)
        # gunicorn has one number for two things; the arbiter's copy stays its patience with a stuck worker, this
        # process's copy is how long a client may be silent within a body.
        self.cfg.set("timeout", self.app.settings.timeout_s)
        # The worker names its protocol class by this global only; and the class caches on whichever class is asked first
        # what its methods look up on the base, so that a subclass asked first would never get the C parser.
        ASGIProtocol._check_h1c_protocol_available()
        gasgi.ASGIProtocol = FrontProtocol
        websocket.WebSocketProtocol = ClientSocket
        super().init_process()

    def init_signals(self) -> None:
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def _get_ssl_context(self) -> ssl.SSLContext | None:
        settings = self.app.settings
        if not settings.ssl_cert_file:
            return None
        try:
            certificate = Certificate(settings.ssl_cert_file, settings.ssl_key_file)
        except OSError as error:
            log.error("cannot use the certificate %s: %s", settings.ssl_cert_file, error)
            raise SystemExit(Arbiter.WORKER_BOOT_ERROR) from None
        self.asgi.on_tls(certificate.renew)
        return certificate.context

    async def _serve(self) -> None:
        super().init_signals()
        self._main = asyncio.current_task()
        await super()._serve()

    def notify(self) -> None:
        super().notify()
        if not self._deep:
            # The event loop has cut each listener's backlog to its own default, 100.
            self._deep = True
            for listener in self.sockets:
                listener.sock.listen(BACKLOG)
        # Called first thing in each round of the main loop, and nowhere else but in a drain.
        self._napping = not self._draining

    def handle_exit_signal(self) -> None:
        super().handle_exit_signal()
        self._end_nap()

    def handle_quit_signal(self) -> None:
        super().handle_quit_signal()
        self._end_nap()

    def _end_nap(self) -> None:
        if self._napping and self._main is not None:
            self._napping = False
            self._main.cancel()

    async def _shutdown(self) -> None:
        self._draining, self._napping = True, False
        self.draining.set()
        beat = asyncio.ensure_future(self._drain())
        try:
            await super()._shutdown()
        finally:
            beat.cancel()

    async def _drain(self) -> None:
        while True:
            self.notify()
            for connection in list(self.connections):
                connection.close_if_idle()
            await asyncio.sleep(DRAIN_BEAT_S)
