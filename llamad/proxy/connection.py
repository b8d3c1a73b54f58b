"""One HTTP/1.1 client connection to an instance or to the admin socket: one exchange at a time, bytes as they come.

The parser is httptools; this file owns what lies around it: waiting, back-pressure, and telling apart how an exchange
can end. An answer is whole when its framing says so, or at the end of the connection when it has no framing. Any
other end of the connection, or bytes that are no HTTP, is an UpstreamBroke, which says whether anything had come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from llamad.errors import ChildError
from llamad.proxy.heads import Header

HEAD_BYTES_MAX = 64 * 1024
# How much of an answer waits here for a slow client before the instance is no longer read.
HIGH_WATER_BYTES = 256 * 1024
LOW_WATER_BYTES = 64 * 1024
PLAIN_CHUNK_BYTES_MAX = 4096


class UpstreamBroke(ChildError):
    """The other side broke an exchange off. `began`: some of its answer had come. `silent`: it was we who gave it up."""

    def __init__(self, message: str, *, began: bool, silent: bool = False) -> None:
        super().__init__(message)
        self.began = began
        self.silent = silent


class Drain(Protocol):
    """Where a body goes, at once."""

    def take(self, chunk: bytes) -> None:
        """Bytes of the body."""

    def take_framed(self, chunk: bytes, size: int) -> None:
        """The same: exactly one chunk of `size` bytes, which is more than one, with its framing."""


class Connection(asyncio.Protocol):
    """A connection, idle or in one exchange; `on_lost` hears of its end, so that a pool can forget it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[Connection], None]) -> None:
        self._loop = loop
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._lost = False
        self._paused = False
        self._held = False
        self._drain: Drain | None = None
        self._idle = True
        self.reads = 0
        """How often anything has come."""
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._head_done = False
        self._framed = False
        self._has_length = False
        self._keep_alive = False
        self._whole = False
        self._surplus = False
        self._between_chunks = False
        self._error: str | None = None
        self._silent = False
        self._pieces: list[bytes] = []
        self._chunks: deque[bytes] = deque()
        self._buffered_bytes = 0

    # ---- exchange

    def begin(self, head: bytes, body: bytes | bytearray) -> None:
        """Send a request. The body is not copied: it must not change until the answer has come."""
        assert self._transport is not None
        self._idle = False
        self._reset()
        self._transport.writelines((head, body) if body else (head,))

    async def wait_head(self) -> None:
        """Wait until `status` and `headers` are there. No limit: a prompt may take minutes. Raises UpstreamBroke."""
        while not self._head_done:
            await self._progress()

    async def next_chunk(self) -> bytes | None:
        """The next bytes of the body in the pieces in which they came, None at its end. Raises UpstreamBroke."""
        while not self._chunks:
            if self._whole:
                return None
            await self._progress()
        return self._next()

    def whole_body(self) -> bytes | None:
        """A body with a length of which all has come and nothing was taken, as most small ones have with their heads."""
        if not (self._whole and self._has_length):
            return None
        return b"".join(self._chunks)

    async def pour(self, drain: Drain) -> None:
        """Give the rest of the body to `drain`, each piece in the moment in which it comes. Raises UpstreamBroke.

        Whoever takes it holds back what is too much.
        """
        while self._chunks:
            drain.take(self._next())
        self._drain = drain
        try:
            while not self._whole:
                await self._progress()
        finally:
            self._drain = None

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for what comes, and would take it."""
        return self._waiter is not None and not self._held

    def give_up(self, reason: str) -> None:
        """Wait no longer for the rest."""
        self._silent = True
        self._break(reason)

    def hold(self) -> None:
        """Read no more, until `let_go`."""
        self._held = True
        self._follow()

    def let_go(self) -> None:
        self._held = False
        self._follow()

    @property
    def reusable(self) -> bool:
        """Whether the exchange is over and left the connection clean."""
        clean = self._whole and self._framed and not self._surplus and self._error is None
        return (
            clean
            and self._keep_alive
            and self.usable
            and self._transport is not None
            and self._transport.get_write_buffer_size() == 0
        )

    @property
    def usable(self) -> bool:
        """Whether an idle connection still stands."""
        return not self._lost and self._transport is not None and not self._transport.is_closing()

    def rest(self) -> None:
        """Go idle after an exchange: from here on anything that comes, also an end, makes it unusable."""
        self._idle = True
        self._chunks.clear()
        self._buffered_bytes = 0
        self._follow()

    def abort(self) -> None:
        """Close at once; the other side sees it as a client that hung up. Idempotent."""
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self._drain is not None and self._between_chunks and (size := size_of_one_chunk(data)):
            # Between two chunks the parser's state is always the same, so it need not see those that are whole.
            self._drain.take_framed(data, size)
            return
        if self._idle:
            self.abort()
            return
        if not self._head_done:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"its answer is no HTTP: {error}")
            return
        if not self._head_done and self._head_bytes > HEAD_BYTES_MAX:
            self._break(f"the head of its answer is over {HEAD_BYTES_MAX} bytes")
            return
        self._between_chunks = self._between_chunks and data.endswith(b"\r\n")
        self._collect()
        if self._drain is None or self._whole:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._head_done and not self._framed and exc is None:
            self._whole = True
        self._wake()
        self._on_lost(self)

    def _collect(self) -> None:
        """Hand on what one read brought as one chunk: one write down for one read up."""
        if not self._pieces:
            return
        chunk = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._drain is not None:
            self._drain.take(chunk)
            return
        self._chunks.append(chunk)
        self._buffered_bytes += len(chunk)
        self._follow()

    def _next(self) -> bytes:
        chunk = self._chunks.popleft()
        self._buffered_bytes -= len(chunk)
        self._follow()
        return chunk

    def _follow(self) -> None:
        """Read, or do not: between the two marks it stays as it is."""
        mark = LOW_WATER_BYTES if self._paused else HIGH_WATER_BYTES
        pause = self._held or self._buffered_bytes > mark
        if pause != self._paused and self._transport is not None and not self._lost:
            self._paused = pause
            self._transport.pause_reading() if pause else self._transport.resume_reading()

    def _break(self, reason: str) -> None:
        self._error = reason
        self.abort()
        self._wake()

    async def _progress(self) -> None:
        """Wait for anything to happen. Raises UpstreamBroke when nothing can any more."""
        if self._error is not None or self._lost:
            began = self._head_bytes > 0
            raise UpstreamBroke(
                self._error or ("it broke off its answer" if began else "it closed the connection"),
                began=began,
                silent=self._silent,
            )
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- httptools callbacks

    def on_message_begin(self) -> None:
        if self._whole:
            self._surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._surplus:
            return
        if status < 200:
            self.headers.clear()
            return
        self.status = status
        self._head_done = True
        self._keep_alive = self._parser.should_keep_alive()
        names = {name.lower() for name, _ in self.headers}
        self._has_length = b"content-length" in names
        self._framed = self._has_length or b"transfer-encoding" in names or status in (204, 304)

    def on_body(self, piece: bytes) -> None:
        if not self._surplus:
            self._pieces.append(piece)

    def on_chunk_header(self) -> None:
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        self._between_chunks = not self._whole

    def on_message_complete(self) -> None:
        if self._head_done:
            self._whole = True
            self._between_chunks = False


def _chunk_lines() -> list[bytes]:
    """By the length of a chunk with its framing: its first line, which follows from that. b"" where there is no such chunk."""
    lines = [b""] * (PLAIN_CHUNK_BYTES_MAX + len(b"1000\r\n\r\n") + 1)
    for size in range(2, PLAIN_CHUNK_BYTES_MAX + 1):
        line = b"%x\r\n" % size
        lines[len(line) + size + 2] = line
    return lines


# Looked up, because a token comes when the caches have forgotten all of this: to work it out takes twice as long.
_CHUNK_LINES = _chunk_lines()


def size_of_one_chunk(data: bytes) -> int:
    """How many bytes are in it, if it is exactly one chunk with the plainest of framings; else 0.

    It is 0, too, for a chunk of one byte or of more than PLAIN_CHUNK_BYTES_MAX.
    """
    whole = len(data)
    line = _CHUNK_LINES[whole] if whole < len(_CHUNK_LINES) else b""
    return whole - len(line) - 2 if line and data.startswith(line) and data.endswith(b"\r\n") else 0
