"""What a client sees that waits for a model: an answer that begins before its outcome is known.

By opt-in only (`X-Llamad-Progress`), and only for streams, as the price is the status line: once the first word about
the wait is out, a refusal can but be a frame. Until there is something to wait for, the status stays open; so a
request that is refused or served at once gets what it would get without.

`comments` (or `1`): as comments, which every parser of event streams passes over. `events`: as events of type
`progress`, for clients that want to read them.

    : progress {"queued": 2}                            event: progress
    : progress {"loading": 0.37}                        data: {"loading": 0.37}
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import Any

import falcon.asgi
import msgspec

from llamad.errors import LlamadError, RequestError, error_body
from llamad.proxy.answer import Answer
from llamad.proxy.call import Run
from llamad.proxy.lease import Notice
from llamad.proxy.refusals import framed, refusal
from llamad.proxy.sink import Sink
from llamad.wire import lease as wire

# Something comes at least so often, so that nobody on the way takes the line for dead.
BEAT_S = 5.0
REFUSAL_BYTES_MAX = 64 * 1024
_STEP = 0.01
_PING = b": ping\n\n"

log = logging.getLogger(__name__)


class Style(Enum):
    """How a client wants to be told."""

    COMMENTS = "comments"
    EVENTS = "events"


_STYLES = {"1": Style.COMMENTS, "comments": Style.COMMENTS, "events": Style.EVENTS}
_NO = ("0", "off", "")


def style_of(header: str | None) -> Style | None:
    """None: the client has not opted in. Raises RequestError."""
    word = (header or "").strip().lower()
    if word in _NO:
        return None
    if word not in _STYLES:
        raise RequestError(
            f"cannot read X-Llamad-Progress: {word[:40]!r}: expected 1, comments or events", kind="bad-header"
        )
    return _STYLES[word]


class Progress:
    """The latest word about a wait. Words that nobody took are replaced by newer ones."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._latest: dict[str, Any] | None = None
        self._loaded = -1.0
        self._changed = asyncio.Event()

    def note(self, notice: Notice) -> None:
        if isinstance(notice, wire.Progress):
            if notice.value < 1.0 and abs(notice.value - self._loaded) < _STEP:
                return
            self._loaded = notice.value
            self._latest = {"loading": round(notice.value, 4)}
        else:
            self._latest = {"queued": notice.position}
        self._changed.set()

    async def began(self, opening: asyncio.Future[None]) -> bool:
        """Wait until there is something to tell, or nothing to wait for."""
        await self._changed_or(opening)
        return not opening.done()

    async def frame(self, opening: asyncio.Future[None]) -> bytes | None:
        """The next word; None when the wait is over."""
        await self._changed_or(opening, BEAT_S)
        if opening.done():
            return None
        latest, self._latest = self._latest, None
        self._changed.clear()
        return _PING if latest is None else self._framed(msgspec.json.encode(latest))

    async def _changed_or(self, opening: asyncio.Future[None], timeout_s: float | None = None) -> None:
        change = asyncio.ensure_future(self._changed.wait())
        first: set[asyncio.Future[Any]] = {change, opening}
        try:
            await asyncio.wait(first, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()

    def _framed(self, document: bytes) -> bytes:
        if self._style is Style.COMMENTS:
            return b": progress " + document + b"\n\n"
        return b"event: progress\ndata: " + document + b"\n\n"


class WaitingAnswer:
    """The body: words about the wait, then the instance's answer, or the reason why there is none in a frame."""

    def __init__(
        self, opening: asyncio.Future[None], run: Run, progress: Progress, sink: Sink | None
    ) -> None:
        self._opening = opening
        self._run = run
        self._progress = progress
        self._sink = sink
        self._over = False

    def send_head(self, resp: falcon.asgi.Response) -> None:
        resp.status = 200
        resp.content_type = "text/event-stream"
        resp.set_header("x-accel-buffering", "no")
        resp.set_header("cache-control", "no-cache")
        resp.stream = self

    def __aiter__(self) -> WaitingAnswer:
        return self

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        if not self._opening.done():
            word = await self._progress.frame(self._opening)
            if word is not None:
                return word
        answer = self._run.answer
        if answer is None or not (answer.is_event_stream and answer.status == 200):
            self._over = True
            return framed(self._run.call.path, await self._outcome(answer))
        answer.goes_by(self._sink)
        return await answer.__anext__()

    async def _outcome(self, answer: Answer | None) -> bytes:
        """One line of JSON in the place of a stream."""
        path = self._run.call.path
        try:
            await self._opening
        except LlamadError as error:
            log.info("%s (told in a stream)", error.message)
            return refusal(path, error.body())
        assert answer is not None
        text = bytearray()
        async for chunk in answer:
            text += chunk
            if len(text) > REFUSAL_BYTES_MAX:
                break
        try:
            return msgspec.json.encode(msgspec.json.decode(text))
        except msgspec.DecodeError:
            message = f"cannot answer as a stream: the instance answered with status {answer.status}"
            return refusal(path, error_body("no-stream", answer.status, message))
