"""The front's end of a WebSocket to an instance, on the websockets library.

The library's `connect` follows redirects, obeys proxy variables and rewrites paths; a relay wants none of that, so this
puts the library's connection on a transport of its own, with the request target's bytes as they came.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from llamad.errors import RequestError, error_body
from llamad.proxy.connection import UpstreamBroke
from llamad.proxy.heads import Header, answer_headers, passed_headers
from llamad.proxy.pool import CONNECT_TIMEOUT_S

HANDSHAKE_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 2.0
# Frames that wait here before the instance is no longer read: a message may be large.
FRAMES_MAX = 4
WRITE_BYTES_MAX = 256 * 1024

_OF_A_HANDSHAKE = frozenset(
    (
        b"sec-websocket-accept",
        b"sec-websocket-extensions",
        b"sec-websocket-key",
        b"sec-websocket-protocol",
        b"sec-websocket-version",
        b"content-length",
        b"date",
        b"server",
    )
)


class Upgrade(NamedTuple):
    """A client's request for a WebSocket, `message_bytes_max` 0: no bound."""

    path: bytes
    query: bytes
    headers: list[Header]
    subprotocols: tuple[str, ...]
    request_id: str
    message_bytes_max: int


class Refused(Exception):
    """The instance answered with something else than a WebSocket."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


class Socket:
    """An open WebSocket to an instance."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.subprotocol = connection.subprotocol
        assert connection.response is not None
        self.headers = _end_to_end(connection.response)

    async def send(self, message: str | bytes) -> None:
        """Returns when there is room for more. Raises ConnectionClosed."""
        await self._connection.send(message)

    async def receive(self) -> str | bytes:
        """Raises ConnectionClosed."""
        return await self._connection.recv()

    def end(self) -> tuple[str, int, str]:
        """By whom it was ended, the code and the reason; 1006 if without a word."""
        protocol = self._connection.protocol
        if protocol.close_rcvd is None and protocol.close_sent is not None:
            # The library ended it: the instance broke the protocol, or a message was over the bound.
            return "front", protocol.close_sent.code, protocol.close_sent.reason
        return "instance", protocol.close_code or 1006, protocol.close_reason or ""

    async def close(self, code: int, reason: str) -> None:
        await self._connection.close(code, reason)

    def abort(self) -> None:
        """Let go at once. Idempotent."""
        self._connection.transport.abort()


async def open_socket(address: str, token: str, upgrade: Upgrade) -> Socket:
    """Raises UpstreamBroke when there is nobody, Refused when there is no WebSocket, RequestError for a bad target."""
    connection = await _connect(address, _protocol(address, upgrade))
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            await connection.handshake(_headers(token, upgrade), None)
    except InvalidStatus as error:
        connection.transport.abort()
        raise _refused(error.response) from None
    except TimeoutError:
        connection.transport.abort()
        raise UpstreamBroke(f"it did not answer within {HANDSHAKE_TIMEOUT_S:.0f} s", began=False) from None
    except (OSError, EOFError, InvalidHandshake) as error:
        connection.transport.abort()
        raise UpstreamBroke(f"its handshake failed: {error}", began=False) from None
    except BaseException:
        connection.transport.abort()
        raise
    return Socket(connection)


def _protocol(address: str, upgrade: Upgrade) -> ClientProtocol:
    host, _, port = ("localhost", "", "80") if address.startswith("unix:") else address.rpartition(":")
    try:
        path, query = upgrade.path.decode("ascii"), upgrade.query.decode("ascii")
    except UnicodeDecodeError:
        raise RequestError("cannot take a path with bytes that are no ASCII", kind="bad-http") from None
    return ClientProtocol(
        WebSocketURI(False, host, int(port), path, query),
        subprotocols=[Subprotocol(name) for name in upgrade.subprotocols] or None,
        max_size=upgrade.message_bytes_max or None,
    )


async def _connect(address: str, protocol: ClientProtocol) -> ClientConnection:
    """uvloop takes it ill when a connect in flight is cancelled, so the wait is shielded."""
    loop = asyncio.get_running_loop()

    def build() -> ClientConnection:
        return ClientConnection(
            protocol,
            ping_interval=None,
            close_timeout=CLOSE_TIMEOUT_S,
            max_queue=FRAMES_MAX,
            write_limit=WRITE_BYTES_MAX,
        )

    async def connect() -> ClientConnection:
        kind, _, rest = address.partition(":")
        if kind == "unix":
            return (await loop.create_unix_connection(build, rest))[1]
        return (await loop.create_connection(build, kind, int(rest)))[1]

    connecting = asyncio.ensure_future(connect())
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await asyncio.shield(connecting)
    except (TimeoutError, OSError) as error:
        connecting.add_done_callback(_abort_late)
        raise UpstreamBroke(f"it takes no connection: {error}", began=False) from None
    except asyncio.CancelledError:
        connecting.add_done_callback(_abort_late)
        raise


def _abort_late(connecting: asyncio.Future[ClientConnection]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().transport.abort()


def _headers(token: str, upgrade: Upgrade) -> list[tuple[str, str]]:
    passed = [
        header for header in passed_headers(upgrade.headers) if header[0].lower() not in _OF_A_HANDSHAKE
    ]
    return [
        *((name.decode("latin-1"), value.decode("latin-1")) for name, value in passed),
        ("Authorization", f"Bearer {token}"),
        ("X-Request-Id", upgrade.request_id),
    ]


def _end_to_end(response: Response) -> list[Header]:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items()]
    return [header for header in raw if header[0].lower() not in _OF_A_HANDSHAKE]


def _refused(response: Response) -> Refused:
    """The instance's own error, or what an answer that is none comes to."""
    if response.status_code >= 400 and response.body:
        return Refused(response.status_code, answer_headers(_end_to_end(response)), bytes(response.body))
    message = f"cannot open a WebSocket: the instance answered with status {response.status_code}"
    body = msgspec.json.encode(error_body("no-websocket", 501, message))
    return Refused(501, [("content-type", "application/json")], body)
