"""The admin server: connections, rights, and exchanges. Which route does what is in `admin_routes`.

Who may connect is the socket's file mode; who may change anything is asked of the kernel when the connection is made:
root, the daemon's own user (which the proxy workers are), and members of the operators' group.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from llamad.daemon.kernel import Kernel, Peer
from llamad.daemon.loop import Loop, Timer
from llamad.daemon.stream import Acceptor, Stream
from llamad.errors import LlamadError, RequestError
from llamad.wire.admin import Request, ServerConnection, json_bytes
from llamad.wire.policy import CLIENT_HEADER

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 256
UNSENT_BYTES_MAX = 8 << 20
SILENT_S_MAX = 75.0

JSON = ("Content-Type", "application/json")


class Exchange:
    """One request and its answer: exactly one of `answer`, `fail` and `begin` is called, now or later.

    `on_abandoned` is called when the peer left before the end of the answer.
    """

    def __init__(self, connection: Connection, request: Request) -> None:
        self.request = request
        self.on_abandoned: Callable[[], None] | None = None
        self._connection = connection

    @property
    def open(self) -> bool:
        """Whether the peer still waits for this answer."""
        return self._connection.exchange is self

    @property
    def client(self) -> str:
        """On whose behalf a proxy worker asks; "": the peer asks for itself."""
        return self.request.headers.get(CLIENT_HEADER.decode(), "")

    def require_rights(self) -> None:
        """Raises RequestError (403) for a peer that may only read, or asks for a client that may."""
        if self.client and not self._connection.may_manage(self.client):
            text = "cannot allow this: the key lacks the scope manage"
            raise RequestError(text, kind="scope-missing", status=403)
        if not self._connection.may_change:
            text = f"cannot allow this to user {self._connection.peer.uid}: root, the daemon's user and group llamad may"
            raise RequestError(text, kind="not-allowed", status=403)

    def answer(self, document: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> None:
        if self.open:
            self._connection.send(
                self._connection.protocol.answer(status, [JSON, *headers], json_bytes(document))
            )
            self._connection.exchange_ended()

    def fail(self, error: LlamadError) -> None:
        headers: tuple[tuple[str, str], ...] = ()
        if error.retry_after_s is not None:
            headers = (("Retry-After", str(max(1, round(error.retry_after_s)))),)
        self.answer(error.body(), error.status, headers)

    def begin(self, content_type: str) -> None:
        """Start an answer of unknown length."""
        headers = [("Content-Type", content_type), ("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no")]
        if self.open:
            self._connection.send(self._connection.protocol.begin(200, headers))

    def write(self, data: bytes) -> None:
        if self.open:
            self._connection.send(self._connection.protocol.chunk(data))

    def end(self) -> None:
        if self.open:
            self._connection.send(self._connection.protocol.finish())
            self._connection.exchange_ended()


class Connection:
    """One peer: requests one after another, each answered before the next is looked at."""

    def __init__(self, server: AdminServer, peer: Peer, may_change: bool) -> None:
        self.peer = peer
        self.may_change = may_change
        self.protocol = ServerConnection()
        self.exchange: Exchange | None = None
        self.stream: Stream | None = None
        self._server = server
        self._silence: Timer | None = None

    def may_manage(self, client: str) -> bool:
        return self._server.may_manage(client)

    def send(self, data: bytes) -> None:
        if self.stream is not None and data:
            self.stream.send(data)

    def exchange_ended(self) -> None:
        self.exchange = None
        assert self.stream is not None
        if self.protocol.closes:
            self._hang_up()
        else:
            self._server.next_pass(self.take_requests)

    def received(self, data: bytes) -> None:
        try:
            self.protocol.receive(data)
        except RequestError as error:
            self._refuse(error)
            return
        self.take_requests()

    def take_requests(self) -> None:
        if self.stream is None or self.stream.closed or self.exchange is not None:
            return
        try:
            request = self.protocol.next_request()
        except RequestError as error:
            self._refuse(error)
            return
        if request is None:
            self.send(self.protocol.invitation())
            self.expect_more()
            return
        self._expect_nothing()
        self.exchange = Exchange(self, request)
        self._server.dispatch(self.exchange)

    def expect_more(self) -> None:
        """A peer that has nothing to say for long makes room for others."""
        self._expect_nothing()
        self._silence = self._server.after(SILENT_S_MAX, self._too_silent)

    def lost(self, reason: str) -> None:
        self._expect_nothing()
        exchange, self.exchange = self.exchange, None
        if exchange is not None and exchange.on_abandoned is not None:
            exchange.on_abandoned()
        self._server.forget(self)

    def _refuse(self, error: RequestError) -> None:
        """Answer what cannot be read, unless an answer is under way, and hang up."""
        assert self.stream is not None
        if self.exchange is None:
            self.send(self.protocol.answer(error.status, [JSON], json_bytes(error.body())))
            self._hang_up()
        else:
            self.stream.close(error.message)

    def _hang_up(self) -> None:
        """After the last byte, or when the peer does not take it."""
        assert self.stream is not None
        self.expect_more()
        self.stream.close_when_sent()

    def _too_silent(self) -> None:
        if self.stream is not None:
            self.stream.close()

    def _expect_nothing(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


class AdminServer:
    """All connections of the admin socket. `handle` answers an exchange or raises; `operators_gid` -1: no such group.

    `may_manage` knows the clients of the public port, for whom proxy workers ask.
    """

    def __init__(
        self,
        loop: Loop,
        kernel: Kernel,
        listener: socket.socket,
        handle: Callable[[Exchange], None],
        operators_gid: int = -1,
        may_manage: Callable[[str], bool] = lambda client: True,
    ) -> None:
        self.may_manage = may_manage
        self._loop = loop
        self._kernel = kernel
        self._handle = handle
        self._operators_gid = operators_gid
        self._connections: set[Connection] = set()
        self._acceptor = Acceptor(loop, kernel, listener, self.connected)

    def close(self) -> None:
        """Drop all connections; streams end without their last chunk."""
        self._acceptor.close()
        for connection in list(self._connections):
            if connection.stream is not None:
                connection.stream.close()

    def connected(self, accepted: socket.socket) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            log.warning("cannot take another admin connection: %d are open", CONNECTIONS_MAX)
            accepted.close()
            return
        try:
            peer = self._kernel.peer(accepted)
        except OSError as error:
            log.warning("cannot tell who connects to the admin socket: %s", error)
            accepted.close()
            return
        connection = Connection(self, peer, may_change(peer, self._operators_gid))
        connection.stream = Stream(
            self._loop,
            self._kernel,
            accepted,
            UNSENT_BYTES_MAX,
            on_data=connection.received,
            on_end=connection.lost,
        )
        self._connections.add(connection)
        connection.expect_more()

    def dispatch(self, exchange: Exchange) -> None:
        try:
            self._handle(exchange)
        except LlamadError as error:
            exchange.fail(error)
        except Exception:  # one route's bug is one answer's failure, not the daemon's end
            log.exception("cannot answer %s %s", exchange.request.method, exchange.request.path)
            exchange.fail(LlamadError("cannot answer this: an error in llamad, see its log"))

    def next_pass(self, callback: Callable[[], None]) -> None:
        self._loop.before_sleep(callback)

    def after(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_s, callback)

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)


def may_change(peer: Peer, operators_gid: int) -> bool:
    """Whether this peer may do more than read."""
    return peer.uid in (0, os.geteuid()) or (operators_gid != -1 and operators_gid in peer.gids)
