"""The body of a streamed answer: frames of server-sent events, made as the engine speaks.

A token's way out is paid for with every token, on a core that the next token may be waiting for. So what a step brings is
sent by the very callback that brings it, and no task wakes up for it. Falcon, which iterates over the body, is given the
rest: what was there before it asked, and the end. Where a send has to wait, because the client reads slowly, Falcon's task
waits for it, and gets what has come in the meantime; so frames never overtake each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from llamad.api.answer import Dialect
from llamad.child.begun import Begun, begin
from llamad.child.door import Send
from llamad.child.work import Part, Work
from llamad.engine.vocabulary import Finished, Progress, Text
from llamad.errors import LlamadError

# Timers may be early by the loop's tick.
TICK_S = 0.001


class EventStream:
    """All frames, those of one step together, and a ping where none goes out for `ping_s`: because nothing comes, or
    because what comes is held back until it is certain what it is.

    A failure on the way is a last frame, and then no end marker. `send`: ASGI's. Stop it, whatever happens.
    """

    def __init__(self, dialect: Dialect, work: Work, ping_s: float | None, send: Send) -> None:
        self._dialect = dialect
        self._framing = dialect.framing
        self._work = work
        self._ping_s = ping_s
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._opening = self._framing.frames(dialect.opening())
        self._finished: list[Finished] = []
        self._over = False
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        """Falcon's task, while whatever comes may be sent at once."""
        self._begun: Begun | None = None
        """A send that has to wait."""
        self._silent = not work.has_news
        work.listen(self._news)
        if ping_s is not None:
            self._sent_at = self._loop.time()
            self._timer = self._loop.call_later(ping_s, self._look)

    def stop(self) -> None:
        """Let go of the loop."""
        if self._timer is not None:
            self._timer.cancel()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> bytes:
        """What cannot be sent at once."""
        if self._silent:
            self._silent = False
            return self._framing.ping
        while not self._over:
            if frames := self._next():
                self._sent_at = self._loop.time()
                return frames
            await self._flow()
        raise StopAsyncIteration

    async def _flow(self) -> None:
        """Until there is something that cannot be sent at once, or has to wait."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
            if self._begun is not None:
                await self._begun
        finally:
            self._waiter = self._begun = None

    def _news(self) -> None:
        """A step has brought something."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._work.last_has_come:
            waiter.set_result(None)
            return
        try:
            if frames := self._next():
                self._write(waiter, frames)
        except Exception as error:  # noqa: BLE001 - a bug is told to the task whose callback this is
            waiter.set_exception(error)

    def _write(self, waiter: asyncio.Future[None], frames: bytes) -> None:
        self._sent_at = self._loop.time()
        self._begun = begin(self._send({"type": "http.response.body", "body": frames, "more_body": True}))
        if self._begun is not None:
            waiter.set_result(None)

    def _look(self) -> None:
        """The time for a ping has come, if nothing has been sent since it was set."""
        assert self._ping_s is not None
        left_s = self._sent_at + self._ping_s - self._loop.time()
        if left_s < TICK_S:
            left_s = self._ping_s
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                self._write(waiter, self._framing.ping)
        self._timer = self._loop.call_later(left_s, self._look)

    def _next(self) -> bytes:
        """The frames of what is new; none if nothing is, or if all of it is held back."""
        try:
            parts = self._work.arrived()
        except LlamadError as error:
            self._over = True
            return self._framing.frame(self._dialect.failure(error))
        return self._frames(parts) if parts else b""

    def _frames(self, parts: Sequence[Part]) -> bytes:
        dialect, framing = self._dialect, self._framing
        frames, self._opening = [self._opening], b""
        for index, output in parts:
            if isinstance(output, Text):
                frames.append(dialect.frames(index, output))
            elif isinstance(output, Progress):
                frames.append(framing.frames(dialect.progress(index, output)))
            else:
                self._finished.append(output)
                frames.append(framing.frames(dialect.ending(index, output)))
        if self._work.ended:
            self._over = True
            frames += [framing.frames(dialect.closing(self._finished)), framing.done]
        return b"".join(frames)
