"""gunicorn's ASGI worker, with what a front for long streams needs otherwise.

Each override names the behaviour of gunicorn 27.0 that it replaces; tests/process/test_proxy_worker.py guards them, as
most touch names that gunicorn does not promise:

* a signal that comes before the loop runs ends the process; uvloop would swallow it;
* a signal ends the main loop's one-second nap;
* a draining worker says that it is alive, and closes the connections that idle, so that neither the arbiter's patience
  nor a client's keep-alive pool decides how long a drain takes;
* connections, WebSockets and TLS handshakes are ours (`client_connection`, `client_socket`, `handshake`);
* with TLS a certificate that cannot be used ends the worker, where gunicorn would serve without TLS on the same port; a
  renewed one counts from the next handshake on.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from typing import Any

from gunicorn.arbiter import Arbiter
from gunicorn.asgi import websocket
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers import gasgi

from llamad.proxy.certificate import Certificate
from llamad.proxy.client_connection import FrontProtocol
from llamad.proxy.client_socket import ClientSocket
from llamad.proxy.ebb import Ebb, give_memory_back
from llamad.proxy.handshake import Handshake
from llamad.proxy.process import die_with_parent, set_title

log = logging.getLogger(__name__)

STOP_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT))
DRAIN_BEAT_S = 0.25
BACKLOG = 2048


class FrontWorker(gasgi.ASGIWorker):  # type: ignore[misc]
    """One worker process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # In order of their last request.
        self.connections: dict[FrontProtocol, None] = {}
        self.handshakes: set[asyncio.Task[None]] = set()
        self.tls: ssl.SSLContext | None = None
        self.connections_max = self.app.connections_max
        self.ebb = Ebb()
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
        gasgi.ASGIProtocol = Handshake if self.app.settings.ssl_cert_file else FrontProtocol
        websocket.WebSocketProtocol = ClientSocket
        super().init_process()

    def init_signals(self) -> None:
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def _get_ssl_context(self) -> None:
        """The servers' context: none, as `Handshake` has it."""
        settings = self.app.settings
        if not settings.ssl_cert_file:
            return
        try:
            certificate = Certificate(settings.ssl_cert_file, settings.ssl_key_file)
        except OSError as error:
            log.error("cannot use the certificate %s: %s", settings.ssl_cert_file, error)
            raise SystemExit(Arbiter.WORKER_BOOT_ERROR) from None
        self.asgi.on_tls(certificate.renew)
        self.tls = certificate.context

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
        if self.ebb.came(len(self.connections)):
            give_memory_back()
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

    def make_room(self) -> bool:
        """Close the connection that has waited longest for a request, so that a newcomer need not be refused.

        Else whoever opens as many as there may be, and says nothing, would keep everybody out.
        """
        idle = next((connection for connection in self.connections if connection.idle), None)
        if idle is not None:
            idle.close_idle()
        return idle is not None

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
