"""One upstream's answer on its way to one client: the stream that Falcon iterates, and how it ends.

    RUNNING --end of body--> WHOLE
    RUNNING --upstream broke--> BROKEN     an event stream gets one error frame and its end, anything else is cut
    RUNNING --ended by us--> LEFT          the client hung up

What can be framed is framed, because a client of an event stream has a parser for it and nothing else tells a short
answer from a finished one. There is no `[DONE]` after an error. A plain answer has a length or chunks, so cutting the
connection is the one honest end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum

import falcon.asgi

from llamad.errors import LlamadError
from llamad.proxy.connection import Connection, UpstreamBroke
from llamad.proxy.heads import answer_headers
from llamad.proxy.pool import Pool
from llamad.proxy.refusals import error_frame
from llamad.proxy.sink import Sink
from llamad.wire.meter import Meter

log = logging.getLogger(__name__)

Reason = Callable[[UpstreamBroke], Awaitable[LlamadError]]


class AnswerState(Enum):
    """How far an answer has come."""

    RUNNING = "running"
    WHOLE = "whole"
    BROKEN = "broken"
    LEFT = "left"


class AnswerCut(asyncio.CancelledError):
    """Ends a request whose answer cannot be finished.

    For gunicorn a cancelled request is one whose connection it closes without a further byte or log line, which is what
    has to happen here; the cause has been logged.
    """


class Answer:
    """An open exchange as an async iterator of body chunks. `end` may be called on every way out.

    `path`: the route that it answers, whose shape an error has.
    """

    def __init__(
        self, pool: Pool, address: str, connection: Connection, reason: Reason, path: str = ""
    ) -> None:
        self._pool = pool
        self._address = address
        self._connection = connection
        self._reason = reason
        self._sink: Sink | None = None
        self._path = path
        self._last_two = b""
        self._ended = False
        self.status = connection.status
        self.state = AnswerState.RUNNING
        self.sent_bytes = 0
        self.meter: Meter | None = None
        headers = {name.lower(): value.lower() for name, value in connection.headers}
        self.is_event_stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
        self._can_frame = (
            self.is_event_stream and b"content-encoding" not in headers and b"content-length" not in headers
        )

    @property
    def tokens(self) -> int:
        """What the answer took, if that is counted. A refusal takes none."""
        return self.meter.tokens() if self.meter is not None and self.status < 400 else 0

    def send_head(self, resp: falcon.asgi.Response, sink: Sink | None = None) -> None:
        """Hand status, headers and the body to Falcon: as this stream, which can go by `sink` without it, unless all has come."""
        self._sink = sink
        resp.status = self.status
        for name, value in answer_headers(self._connection.headers):
            resp.append_header(name, value)
        if self.is_event_stream:
            resp.set_header("x-accel-buffering", "no")
            resp.set_header("cache-control", "no-cache")
        whole = self._connection.whole_body()
        if whole is None:
            resp.stream = self
        else:
            self._count(whole)
            self.state = AnswerState.WHOLE
            resp.data = whole

    def __aiter__(self) -> Answer:
        return self

    def goes_by(self, sink: Sink | None) -> None:
        """The head is out already."""
        self._sink = sink

    async def __anext__(self) -> bytes:
        if self.state is not AnswerState.RUNNING:
            raise StopAsyncIteration
        try:
            chunk = await self._next()
        except UpstreamBroke as broke:
            return await self._broken(broke)
        if chunk is None:
            self.state = AnswerState.WHOLE
            raise StopAsyncIteration
        self._count(chunk)
        return chunk

    async def rest(self) -> bytes:
        """All of it at once, for a document of bounded size. Raises UpstreamBroke."""
        chunks = []
        while (chunk := await self._connection.next_chunk()) is not None:
            chunks.append(chunk)
        self.state = AnswerState.WHOLE
        return b"".join(chunks)

    async def _next(self) -> bytes | None:
        """The next chunk; None at the end, which comes at once where there is a way without chunks."""
        sink = self._sink
        if sink is None or not sink.open:
            return await self._connection.next_chunk()
        with sink.fed_by(self._connection):
            await self._connection.pour(self)
        return None

    def take(self, chunk: bytes) -> None:
        """From the connection: one read's worth."""
        assert self._sink is not None
        self._count(chunk)
        self._sink.write(chunk)

    def take_framed(self, chunk: bytes, size: int) -> None:
        """From the connection: what can go on as it is."""
        assert self._sink is not None
        if self.meter is not None:
            self.meter.feed(chunk[-size - 2 : -2])
        self.sent_bytes += size
        self._last_two = chunk[-4:-2]
        self._sink.write_framed(chunk)

    def _count(self, chunk: bytes) -> None:
        self.sent_bytes += len(chunk)
        if self.meter is not None:
            self.meter.feed(chunk)
        self._last_two = chunk[-2:] if len(chunk) > 1 else self._last_two[-1:] + chunk

    async def _broken(self, broke: UpstreamBroke) -> bytes:
        self.state = AnswerState.BROKEN
        error = await self._reason(broke)
        log.warning("%s (after %d bytes)", error.message, self.sent_bytes)
        if not self._can_frame:
            raise AnswerCut(error.message)
        return self._end_of_event() + error_frame(self._path, error)

    def _end_of_event(self) -> bytes:
        """The blank line that an event cut short lacks, so that the error is an event of its own."""
        return b"" if self._last_two in (b"", b"\n\n") else b"\n\n"

    def end(self) -> None:
        """Give the connection back; an upstream that is still answering sees its client hang up."""
        if self.state is AnswerState.RUNNING:
            self.state = AnswerState.LEFT
        if not self._ended:
            self._ended = True
            self._pool.give_back(self._address, self._connection)
