"""Conversations in the instance: requests whose generation outlives their callers, and whose output can be read again.

The application answers into a *recording*, at its own speed and to its end, whoever listens. Callers are readers of
the recording: the one that began it, from offset 0, and any that come later, each from where it left off. So all of
them get the same bytes, and none of them can stop it by leaving.

    OPEN --head--> SPEAKING --last byte--> WHOLE --KEPT_S--> forgotten
    OPEN, SPEAKING --stopped--> STOPPED         readers are told, and it is forgotten at once
    OPEN, SPEAKING --application failed--> BROKEN

Memory is bounded twice. Each recording keeps its last `RING_BYTES_MAX` bytes; the caller that began it holds the
application back rather than miss any, as it would without a conversation, but only until somebody else reads: then
its own line is taken for dead. All recordings together keep TOTAL_BYTES_MAX: those that have been whole for longest go
first, and then the longest gives up its oldest bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec

from llamad.child.ring import BytesLost, Ring
from llamad.errors import LlamadError, NotFoundError, RequestError
from llamad.wire.meter import Meter

KEPT_S = 300.0
RING_BYTES_MAX = 4 << 20
TOTAL_BYTES_MAX = 64 << 20
RECORDINGS_MAX = 1024

Header = tuple[bytes, bytes]
Report = Callable[[int, str, int], None]


class RecordingState(Enum):
    """How far an answer has come."""

    OPEN = "open"
    SPEAKING = "speaking"
    WHOLE = "whole"
    STOPPED = "stopped"
    BROKEN = "broken"


_OVER = (RecordingState.WHOLE, RecordingState.STOPPED, RecordingState.BROKEN)


class Recording:
    """One conversation's answer. `send` is the application's; `wait_head` and `read` are the readers'."""

    def __init__(
        self,
        ticket: int,
        id: str,
        request_bytes: int,
        started_at: int,
        on_growth: Callable[[Recording, int], None],
    ) -> None:
        self.ticket = ticket
        self.id = id
        self.started_at = started_at
        self._request_bytes = request_bytes
        self._counted = False
        self.completed_at = 0
        self.state = RecordingState.OPEN
        self.status = 0
        self.headers: list[Header] = []
        self.ring = Ring(RING_BYTES_MAX)
        self.task: asyncio.Task[None] | None = None
        self._caller: Replay | None = None
        self._on_growth = on_growth
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def over(self) -> bool:
        return self.state in _OVER

    @property
    def is_event_stream(self) -> bool:
        return self.header(b"content-type").startswith(b"text/event-stream")

    def header(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key.lower() == name), b"")

    def tokens(self) -> int:
        """What it took, as far as its output tells; the first time only, then 0. A refusal takes none."""
        if self._counted or self.status >= 400:
            return 0
        self._counted = True
        meter = Meter(self._request_bytes)
        offset = self.ring.start
        while piece := self.ring.read(offset):
            meter.feed(piece)
            offset += len(piece)
        return meter.tokens()

    # ---- the application's side

    async def send(self, event: dict[str, Any]) -> None:
        """ASGI's `send`."""
        if self.over:
            return
        if event["type"] == "http.response.start":
            self.status, self.headers = event["status"], list(event.get("headers", ()))
            self.state = RecordingState.SPEAKING
        elif event["type"] == "http.response.body":
            await self._append(event.get("body", b""))
            if not event.get("more_body", False):
                self.state = RecordingState.WHOLE
        self._wake()

    def end(self, state: RecordingState) -> None:
        """Nothing more comes. What was whole stays whole."""
        if not self.over:
            self.state = state
        self._wake()

    async def _append(self, body: bytes) -> None:
        """In pieces that leave room for each other, as one may be larger than the ring."""
        step = max(1, self.ring.limit_bytes // 2)
        for begin in range(0, len(body), step):
            piece = body[begin : begin + step]
            while self._caller is not None and self._would_drop(len(piece), self._caller.offset):
                await self._change()
            before = len(self.ring)
            self.ring.append(piece)
            self._on_growth(self, len(self.ring) - before)
            self._wake()

    def _would_drop(self, count: int, unread_from: int) -> bool:
        return self.ring.end + count - unread_from > self.ring.limit_bytes

    # ---- the readers' side

    def replay(self, offset: int, *, caller: bool = False) -> Replay:
        """A reader from `offset` on. Raises RequestError for an offset that cannot be served."""
        if offset > self.ring.end and not caller:
            raise RequestError(
                f"cannot replay from byte {offset}: only {self.ring.end} were written",
                kind="bad-offset",
                details={"total_bytes": self.ring.end},
            )
        if offset < self.ring.start:
            raise _bytes_lost(offset, self.ring.start)
        reader = Replay(self, offset)
        self._caller = reader if caller else None
        self._wake()
        return reader

    def left(self, reader: Replay) -> None:
        """This reader takes no more."""
        if reader is self._caller:
            self._caller = None
            self._wake()

    async def wait_head(self) -> None:
        """Wait for `status` and `headers`. Raises LlamadError if they will not come."""
        while self.state is RecordingState.OPEN:
            await self._change()
        if not self.status:
            raise self.why_over()

    async def read(self, offset: int) -> bytes | None:
        """The next bytes, None after the last. Raises BytesLost, and LlamadError at an end that is none."""
        while not (piece := self.ring.read(offset)):
            if self.state is RecordingState.WHOLE:
                return None
            if self.over:
                raise self.why_over()
            await self._change()
        return piece

    def advanced(self) -> None:
        """A reader has taken something."""
        if self._caller is not None:
            self._wake()

    def why_over(self) -> LlamadError:
        if self.state is RecordingState.STOPPED:
            return stopped(self.id)
        return LlamadError(f"cannot go on with conversation {self.id!r}: an internal error")

    async def _change(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Replay:
    """A reader: an async iterator over the bytes from `offset` on.

    What can be framed is framed: where an event stream cannot go on, its last event is the error, and there is no end
    marker. Anything else raises, which cuts the connection.
    """

    def __init__(self, recording: Recording, offset: int) -> None:
        self._recording = recording
        self.offset = offset
        self._last_two = b""
        self._failed = False

    def __aiter__(self) -> Replay:
        return self

    async def __anext__(self) -> bytes:
        if self._failed:
            raise StopAsyncIteration
        try:
            piece = await self._recording.read(self.offset)
        except BytesLost as lost:
            return self._frame(_bytes_lost(self.offset, lost.start))
        except LlamadError as error:
            return self._frame(error)
        if piece is None:
            raise StopAsyncIteration
        self.offset += len(piece)
        self._last_two = (self._last_two + piece[-2:])[-2:]
        self._recording.advanced()
        return piece

    async def close(self) -> None:
        """Called by Falcon when the caller is gone or has all."""
        self._recording.left(self)

    def _frame(self, error: LlamadError) -> bytes:
        self._failed = True
        if not self._recording.is_event_stream:
            raise error
        gap = b"" if self._last_two in (b"", b"\n\n") else b"\n\n"
        return gap + b"data: " + msgspec.json.encode(error.body()) + b"\n\n"


class Recordings:
    """All recordings of this instance, by ticket. `report` tells the supervisor `ended` and `forgotten`, and what it took."""

    def __init__(self, report: Report, wall: Callable[[], float]) -> None:
        self._report = report
        self._wall = wall
        self._by_ticket: dict[int, Recording] = {}
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self._by_ticket)

    def begin(self, ticket: int, id: str, request_bytes: int = 0) -> Recording:
        """A new one. Raises LlamadError when there are too many that are not over."""
        self.stop(ticket)
        if len(self._by_ticket) >= RECORDINGS_MAX and not self._forget_oldest():
            raise LlamadError(
                f"cannot begin another conversation: {RECORDINGS_MAX} are running",
                kind="too-many-conversations",
                status=503,
                retry_after_s=5.0,
            )
        recording = self._by_ticket[ticket] = Recording(
            ticket, id, request_bytes, int(self._wall()), self._grown
        )
        return recording

    def get(self, ticket: int) -> Recording:
        """Raises NotFoundError."""
        try:
            return self._by_ticket[ticket]
        except KeyError:
            raise NotFoundError(
                "cannot find the conversation: it is forgotten", kind="conversation-not-found"
            ) from None

    def find(self, tickets: list[int]) -> list[Recording]:
        return [self._by_ticket[ticket] for ticket in tickets if ticket in self._by_ticket]

    def ended(self, recording: Recording) -> None:
        """The application is done with it. It is kept for a while."""
        recording.completed_at = int(self._wall())
        if self._by_ticket.get(recording.ticket) is recording:
            self._report(recording.ticket, "ended", recording.tokens())
            asyncio.get_running_loop().call_later(KEPT_S, self.forget, recording)

    def stop(self, ticket: int) -> None:
        """End it now, and forget it. Its readers are told."""
        recording = self._by_ticket.get(ticket)
        if recording is not None:
            recording.end(RecordingState.STOPPED)
            if recording.task is not None:
                recording.task.cancel()
            self.forget(recording)

    def forget(self, recording: Recording) -> None:
        """No reader finds it any more; those that read it already finish."""
        if self._by_ticket.get(recording.ticket) is recording:
            del self._by_ticket[recording.ticket]
            self.total_bytes -= len(recording.ring)
            self._report(recording.ticket, "forgotten", recording.tokens())

    def _forget_oldest(self) -> bool:
        """Of those that are over, the one that has been so for longest."""
        over = [recording for recording in self._by_ticket.values() if recording.over]
        if over:
            self.forget(min(over, key=lambda recording: recording.completed_at))
        return bool(over)

    def _grown(self, recording: Recording, count: int) -> None:
        """Keep the bound of all together."""
        if self._by_ticket.get(recording.ticket) is not recording:
            return
        self.total_bytes += count
        while (excess := self.total_bytes - TOTAL_BYTES_MAX) > 0:
            if not self._forget_oldest():
                longest = max(self._by_ticket.values(), key=lambda recording: len(recording.ring))
                self.total_bytes -= longest.ring.drop(excess)


def stopped(id: str) -> LlamadError:
    return LlamadError(
        f"cannot go on with conversation {id!r}: it was stopped", kind="conversation-stopped", status=410
    )


def _bytes_lost(offset: int, start: int) -> LlamadError:
    return LlamadError(
        f"cannot replay from byte {offset}: the oldest that is kept is {start}",
        kind="conversation-bytes-lost",
        status=410,
        details={"oldest_byte": start},
    )
