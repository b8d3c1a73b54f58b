"""WebSockets: an upgrade on any path with `?model=` is relayed to the model's instance, message by message.

    upgrade -> key, origin, model -> lease -> handshake with the instance -> accept -> messages both ways -> close

The instance is asked first, so that a client is only accepted with the subprotocol that the instance chose, and gets the
instance's own refusal where it does not speak WebSocket (an ordinary answer: nothing has been upgraded yet).

A socket keeps its model busy, but takes none of its slots: what happens on it is between client and instance. So one
that is silent, without a message in either direction, for `idle_s` is closed (1001): a forgotten one would hold its
model for ever. Pings do not count, as libraries send them by themselves; each hop answers its own.

Each direction waits for the other side before it reads on, so what is held of a socket is bounded by a few messages,
and a message by `message_bytes_max` (1009). Close codes and reasons pass both ways. Where the instance goes without a
word, the client is told why (1011).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from websockets.exceptions import ConnectionClosed

from llamad.errors import LlamadError, RequestError
from llamad.proxy.connection import UpstreamBroke
from llamad.proxy.door import Door
from llamad.proxy.gate import CLIENT
from llamad.proxy.heads import answer_headers, request_id_of
from llamad.proxy.lease import Lease, LeaseClient
from llamad.proxy.lookup import Wish, wish_of_upgrade
from llamad.proxy.request import declared_length, error_headers
from llamad.proxy.upstream_socket import Refused, Socket, Upgrade, open_socket
from llamad.wire import lease as wire
from llamad.wire.proxy import ProxySettings

ATTEMPTS_MAX = 2
DRAINING = "llamad.draining"
# A worker that is to go closes sockets that have been silent for so long.
DRAIN_SILENT_S = 5.0
REASON_BYTES_MAX = 123

GOING_AWAY = 1001
ABNORMAL = 1006
INSTANCE_GONE = 1011
SERVICE_RESTART = 1012

log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class End(NamedTuple):
    """Why a socket ends: whose word it is, and the word."""

    by: str
    code: int
    reason: str


class WebSocketRelay:
    """The ASGI application for scopes of type `websocket`."""

    def __init__(self, settings: ProxySettings, leases: LeaseClient, door: Door) -> None:
        self._message_bytes_max = settings.websocket_message_bytes
        self._idle_s = settings.websocket_idle_s
        self._leases = leases
        self._door = door

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await receive()  # `websocket.connect`
        request_id = request_id_of(_header(scope, b"x-request-id"))
        try:
            wish = self._admitted(scope)
            await self._relay(scope, wish, request_id, receive, send)
        except Refused as refused:
            await _deny(send, refused.status, refused.headers, refused.body, request_id)
        except LlamadError as error:
            headers = [("content-type", "application/json"), *error_headers(error)]
            await _deny(send, error.status, headers, msgspec.json.encode(error.body()), request_id)

    def _admitted(self, scope: dict[str, Any]) -> Wish:
        """What to ask for. Raises LlamadError."""
        self._door.admit(scope)
        _check_handshake(scope)
        if not self._door.allows_origin(scope):
            raise RequestError("cannot open a WebSocket from this origin", kind="origin-refused", status=403)
        return wish_of_upgrade(scope["query_string"].decode("latin-1"))

    async def _relay(
        self, scope: dict[str, Any], wish: Wish, request_id: str, receive: Receive, send: Send
    ) -> None:
        upgrade = Upgrade(
            scope["raw_path"],
            scope["query_string"],
            scope["headers"],
            tuple(scope["subprotocols"]),
            request_id,
            self._message_bytes_max,
        )
        began = time.monotonic()
        lease, socket = await self._open(wish, upgrade, scope.get(CLIENT, ""))
        talk = _Talk(socket, receive, send, self._idle_s, scope.get(DRAINING))
        outcome = "hung-up"
        try:
            await send(_accept(socket, request_id))
            end = await talk.run()
            outcome = "ok"
            if end.by == "instance" and end.code == ABNORMAL:
                outcome = "died"
                reason = await lease.why_ended() or "the instance broke off"
                log.warning("cannot go on with a WebSocket of '%s': %s", lease.model, reason)
                end = End("instance", INSTANCE_GONE, reason)
            await talk.close(end)
        finally:
            socket.abort()
            took_s = time.monotonic() - began
            lease.release(outcome, status=101, sent_bytes=talk.sent_bytes, took_s=took_s)

    async def _open(self, wish: Wish, upgrade: Upgrade, client: str) -> tuple[Lease, Socket]:
        """A lease, and a socket to its instance. Raises LlamadError and Refused."""
        avoid = 0
        for attempt in range(1, ATTEMPTS_MAX + 1):
            ask = wire.Ask(0, wish.model, autoload=wish.autoload, avoid=avoid, client=client, slot=False)
            lease = await self._leases.ask(ask)
            outcome = "failed"
            try:
                socket = await open_socket(lease.address, lease.token, upgrade)
                outcome = ""
                return lease, socket
            except UpstreamBroke as broke:
                outcome = "died"
                if attempt == ATTEMPTS_MAX:
                    raise LlamadError(
                        f"cannot open a WebSocket to '{lease.model}': {await lease.why_ended() or broke.message}",
                        kind="instance-died",
                        status=502,
                    ) from None
                avoid = lease.child
            finally:
                if outcome:
                    lease.release(outcome)
        raise AssertionError("the last attempt returns or raises")


class _Talk:
    """An accepted socket, from its first message to its end."""

    def __init__(
        self, socket: Socket, receive: Receive, send: Send, idle_s: float, draining: asyncio.Event | None
    ) -> None:
        self._socket = socket
        self._receive = receive
        self._send = send
        self._idle_s = idle_s
        self._draining = draining or asyncio.Event()
        self._heard_at = time.monotonic()
        self.sent_bytes = 0

    async def run(self) -> End:
        """Relay until one side ends it, or nobody has said anything for too long."""
        parts = [asyncio.ensure_future(part()) for part in (self._up, self._down, self._silence)]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            return next(part for part in parts if part in done).result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def close(self, end: End) -> None:
        """Pass the end on to whoever does not know it yet. The instance first: it is what others wait for."""
        if end.by != "instance":
            await self._socket.close(*_sendable(end))
        if end.by != "client":
            code, reason = _sendable(end)
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _up(self) -> End:
        while True:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                return End("client", event.get("code", ABNORMAL), event.get("reason") or "")
            self._heard_at = time.monotonic()
            text = event.get("text")
            try:
                await self._socket.send(text if text is not None else event["bytes"])
            except ConnectionClosed:
                return End(*self._socket.end())

    async def _down(self) -> End:
        while True:
            try:
                message = await self._socket.receive()
            except ConnectionClosed:
                return End(*self._socket.end())
            self._heard_at = time.monotonic()
            kind = "text" if isinstance(message, str) else "bytes"
            self.sent_bytes += len(message)
            try:
                await self._send({"type": "websocket.send", kind: message})
            except OSError:
                return End("client", ABNORMAL, "")

    async def _silence(self) -> End:
        while True:
            draining = self._draining.is_set()
            limit_s = DRAIN_SILENT_S if draining else self._idle_s or float("inf")
            left_s = self._heard_at + limit_s - time.monotonic()
            if left_s <= 0:
                if draining:
                    return End("front", SERVICE_RESTART, "the front restarts")
                return End("front", GOING_AWAY, f"no message for {self._idle_s:.0f} s")
            await self._pause(left_s, draining)

    async def _pause(self, left_s: float, draining: bool) -> None:
        """Until the time is over, or the worker begins to drain."""
        if draining:
            await asyncio.sleep(left_s)
            return
        try:
            async with asyncio.timeout(left_s if left_s != float("inf") else None):
                await self._draining.wait()
        except TimeoutError:
            pass


def _check_handshake(scope: dict[str, Any]) -> None:
    """What follows its head is frames to one reader and a body to the other: there must be only one way to read it."""
    if scope.get("http_version") == "1.0":
        raise RequestError("cannot open a WebSocket by HTTP/1.0", kind="bad-http")
    if declared_length(scope) != 0:
        raise RequestError("cannot open a WebSocket by a request with a body", kind="bad-http")


def _sendable(end: End) -> tuple[int, str]:
    """A code that may stand in a close frame (RFC 6455, 7.4), and as much of the reason as fits."""
    may = 1000 <= end.code <= 1014 and end.code not in (1004, 1005, 1006)
    code = end.code if may or 3000 <= end.code <= 4999 else 1000 if end.code == 1005 else GOING_AWAY
    return code, end.reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")


def _accept(socket: Socket, request_id: str) -> dict[str, Any]:
    headers = [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in answer_headers(socket.headers)
    ]
    return {
        "type": "websocket.accept",
        "subprotocol": socket.subprotocol,
        "headers": [*headers, (b"x-request-id", request_id.encode())],
    }


async def _deny(
    send: Send, status: int, headers: list[tuple[str, str]], body: bytes, request_id: str
) -> None:
    said = [
        *headers,
        ("content-length", str(len(body))),
        ("x-request-id", request_id),
        ("connection", "close"),
    ]
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in said]
    await send({"type": "websocket.http.response.start", "status": status, "headers": encoded})
    await send({"type": "websocket.http.response.body", "body": body})


def _header(scope: dict[str, Any], wanted: bytes) -> str | None:
    return next((str(value, "latin-1") for name, value in scope["headers"] if name == wanted), None)
