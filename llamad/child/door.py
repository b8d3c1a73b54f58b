"""The instance's front door: who may come in, the whole request, and the caller who leaves.

Under uvicorn only `receive()` tells that a caller has hung up, and handlers do not listen to it. So the door does, for
all of them and at every stage: it reads the body itself, and then runs the application as a task that it cancels as
soon as the caller is gone. What a handler has begun it takes back in the exchange's clean-up, which the door runs
however the task ends.

A conversation is the exception: its application answers into a recording, to the end, and the caller is only one who
reads from it (`conversations` has the theory).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from falcon.asgi import Request

from llamad.child.conversations import Recording, Recordings, RecordingState, Replay
from llamad.errors import LlamadError, RequestError, body_for
from llamad.wire.stream import ID_HEADER, TICKET_HEADER, parse_ticket

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 128 << 20
EXCHANGE = "llamad.exchange"

Scope = dict[str, Any]
Event = Mapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[dict[str, Any]], Coroutine[Any, Any, None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request as handlers see it: its whole body, and what is to be done when it ends, however it does.

    `send`: ASGI's, for what is sent between two pieces of an answer that Falcon sends.
    """

    body: bytes
    send: Send
    cleanup: ExitStack = field(default_factory=ExitStack)


def exchange_of(request: Request) -> Exchange:
    """The exchange that the door made of this request."""
    exchange: Exchange = request.scope[EXCHANGE]
    return exchange


class Door:
    """ASGI application around another one. Only callers with `Authorization: Bearer <token>` are served."""

    def __init__(
        self, app: Application, token: str, recordings: Recordings, body_bytes_max: int = BODY_BYTES_MAX
    ) -> None:
        self._app = app
        self._recordings = recordings
        self._authorization = f"Bearer {token}".encode()
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_token(scope)
            body = await self._read_body(scope, receive)
        except LlamadError as error:
            await _refuse(scope, send, error)
            return
        if body is None:
            return
        ticket = parse_ticket(_header(scope, TICKET_HEADER.encode()))
        if ticket and scope["method"] == "POST":
            await self._converse(ticket, body, scope, receive, send)
            return
        exchange = scope[EXCHANGE] = Exchange(body, send)
        with exchange.cleanup:
            await _serve(self._app, scope, receive, send)

    async def _converse(self, ticket: int, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer into a recording, and the caller read it for as long as it stays."""
        id = str(_header(scope, ID_HEADER.encode()) or b"", "latin-1")
        try:
            recording = self._recordings.begin(ticket, id, len(body))
        except LlamadError as error:
            await _refuse(scope, send, error)
            return
        replay = recording.replay(0, caller=True)
        exchange = scope[EXCHANGE] = Exchange(body, recording.send)
        recording.task = asyncio.create_task(self._record(recording, exchange, scope))
        await _serve(partial(_play, recording, replay), scope, receive, send)
        if recording.status >= 400 and replay.offset == recording.ring.end and recording.over:
            # A refusal that its caller has read is of no interest to anybody else.
            self._recordings.forget(recording)

    async def _record(self, recording: Recording, exchange: Exchange, scope: Scope) -> None:
        try:
            with exchange.cleanup:
                await self._app(scope, _no_body, recording.send)
        except Exception:
            log.exception("cannot finish conversation %r", recording.id)
        finally:
            recording.end(RecordingState.BROKEN)
            self._recordings.ended(recording)

    def _check_token(self, scope: Scope) -> None:
        given = _header(scope, b"authorization") or b""
        if not hmac.compare_digest(given, self._authorization):
            raise LlamadError(
                "cannot serve a caller without this instance's token", kind="bad-token", status=401
            )

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body, None if the caller left before it was complete."""
        limit = self._body_bytes_max
        announced = _header(scope, b"content-length") or b"0"
        if announced.isdigit() and int(announced) > limit:
            raise _too_large(int(announced), limit)
        body = bytearray()
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                return None
            body += event.get("body", b"")
            if len(body) > limit:
                raise _too_large(len(body), limit)
            if not event.get("more_body", False):
                return bytes(body)


async def _serve(app: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """Run the application; cancel it when the caller hangs up before the answer is complete."""
    answered = False

    async def noting_send(event: dict[str, Any]) -> None:
        nonlocal answered
        answered = answered or (event["type"] == "http.response.body" and not event.get("more_body", False))
        await send(event)

    work = asyncio.ensure_future(app(scope, _no_body, noting_send))
    watch = asyncio.ensure_future(_hung_up(receive))
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        # After the last byte the server reports a disconnect, too.
        if not work.done() and not answered:
            work.cancel()
        await asyncio.wait({work})
    finally:
        watch.cancel()
        work.cancel()
    if not work.cancelled():
        work.result()


async def _play(recording: Recording, replay: Replay, scope: Scope, receive: Receive, send: Send) -> None:
    """An application: the recording, as it is being made."""
    try:
        await recording.wait_head()
        start = {"type": "http.response.start", "status": recording.status, "headers": recording.headers}
        await send(start)
        async for piece in replay:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except LlamadError as error:
        if recording.status:
            raise
        await _refuse(scope, send, error)
    finally:
        await replay.close()


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _no_body() -> Event:
    """What the application receives: the door has read the body already."""
    return {"type": "http.request", "body": b"", "more_body": False}


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)


def _too_large(size: int, limit: int) -> RequestError:
    return RequestError(
        f"cannot take a body of {size} bytes or more: at most {limit}", kind="body-too-large", status=413
    )


async def _refuse(scope: Scope, send: Send, error: LlamadError) -> None:
    """An answer without the application. The connection ends: the rest of the body is not wanted."""
    body = msgspec.json.encode(body_for(scope["path"], error.body()))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
