"""A child's three pipes, as seen from the loop: commands down, reports up, logs up.

At the end of a child the order matters: its exit is known by its pidfd at once, but its last words may still stand in the
pipes. `drain` reads both to their end before anybody is told. A pipe whose other end was inherited by a grandchild never
ends, so draining gives up after `DRAIN_S_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llamad.daemon.kernel import Kernel
from llamad.daemon.loop import Loop, Timer
from llamad.errors import ProtocolError
from llamad.wire.lines import LineBuffer

READ_BYTES = 64 * 1024
UNSENT_BYTES_MAX = 1 << 20
DRAIN_S_MAX = 1.0


@dataclass(frozen=True, slots=True)
class PipeEnds:
    """Our ends: `stdin` is written; `stdout` and `stderr` are read. All non-blocking."""

    stdin: int
    stdout: int
    stderr: int


class CommandWriter:
    """Bytes to a child that may be slow to read, or gone."""

    def __init__(self, loop: Loop, kernel: Kernel, fd: int) -> None:
        self._loop = loop
        self._kernel = kernel
        self._fd = fd
        self._unsent = bytearray()
        self._closed = False

    def send(self, data: bytes) -> None:
        """Raises ProtocolError when the child has left too much unread; a child that is gone is no error."""
        if self._closed:
            return
        if len(self._unsent) + len(data) > UNSENT_BYTES_MAX:
            raise ProtocolError(
                f"cannot send to a child that left {len(self._unsent)} bytes of commands unread"
            )
        self._unsent += data
        self._flush()

    def close(self) -> None:
        """End of file for the child, which tells it to leave. What is unsent is dropped."""
        if not self._closed:
            self._closed = True
            self._loop.unwatch(self._fd)
            self._kernel.close(self._fd)

    def _flush(self) -> None:
        try:
            while self._unsent and (taken := self._kernel.write(self._fd, bytes(self._unsent[:READ_BYTES]))):
                del self._unsent[:taken]
        except OSError:
            # Nobody reads any more: the pidfd is about to tell why.
            self.close()
            return
        self._loop.watch(self._fd, writable=self._flush if self._unsent else None)


class LineReader:
    """Lines of one pipe, one read a pass, so that a chatty child cannot hold the loop."""

    def __init__(
        self, loop: Loop, kernel: Kernel, fd: int, lines: LineBuffer, on_line: Callable[[bytes], None]
    ) -> None:
        self._loop = loop
        self._kernel = kernel
        self._fd = fd
        self._lines = lines
        self._on_line = on_line
        self._on_end: Callable[[], None] | None = None
        self.ended = False
        loop.watch(fd, readable=self._read)

    def when_ended(self, callback: Callable[[], None]) -> None:
        self._on_end = callback

    def close(self) -> None:
        if not self.ended:
            self.ended = True
            self._loop.unwatch(self._fd)
            self._kernel.close(self._fd)

    def _read(self) -> None:
        try:
            data = self._kernel.read(self._fd, READ_BYTES)
        except OSError:
            data = b""
        if data:
            self._deliver(self._lines.feed(data))
        elif data is not None:
            self._end()

    def _end(self) -> None:
        rest = self._lines.flush()
        self.close()
        if rest is not None:
            self._deliver([rest])
        if self._on_end is not None:
            self._on_end()

    def _deliver(self, lines: list[bytes]) -> None:
        for line in lines:
            self._on_line(line)


class ChildPipes:
    """The three together, from spawn to the end of both outputs."""

    def __init__(self, commands: CommandWriter, reports: LineReader, logs: LineReader, loop: Loop) -> None:
        self.commands = commands
        self._outputs = (reports, logs)
        self._loop = loop
        self._give_up: Timer | None = None
        self._on_drained: Callable[[], None] | None = None

    def drain(self, on_drained: Callable[[], None]) -> None:
        """Call back once, when both outputs have ended or have been given up. Everything is closed by then."""
        self.commands.close()
        self._on_drained = on_drained
        self._give_up = self._loop.call_later(DRAIN_S_MAX, self.close)
        for output in self._outputs:
            output.when_ended(self._close_when_ended)
        self._close_when_ended()

    def close(self) -> None:
        self.commands.close()
        for output in self._outputs:
            output.close()
        if self._give_up is not None:
            self._give_up.cancel()
        callback, self._on_drained = self._on_drained, None
        if callback is not None:
            callback()

    def _close_when_ended(self) -> None:
        if all(output.ended for output in self._outputs):
            self.close()
