"""The short way for a stream: what one read of the upstream brings is written to the client in the same call.

ASGI wakes a task for each chunk and takes it through a dozen frames; for a stream of tokens that is most of what a front
costs. So a handler may put an answer's source straight onto the client's connection, once the head is out and as long as
gunicorn frames the body in chunks. Head, end marker and keep-alive stay gunicorn's business.

Back-pressure is the transport's: when it has enough, the source is held until it has room again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

SINK = "llamad.sink"


class Source(Protocol):
    """What can be held back."""

    def hold(self) -> None: ...

    def let_go(self) -> None: ...


class Sink:
    """The end of one client's connection. Neither way of writing raises.

    `open`: an answer in chunks has begun, and its head is out. `write`: frames bytes as a chunk; `write_framed`: writes
    chunks as they are; `cut`: ends the connection, whatever of it is unsent.
    """

    def __init__(
        self, write: Callable[[bytes], None], write_framed: Callable[[bytes], None], cut: Callable[[], None]
    ) -> None:
        self.open = False
        self.write = write
        self.write_framed = write_framed
        self.cut = cut
        self._source: Source | None = None
        self._full = False

    @contextmanager
    def fed_by(self, source: Source) -> Iterator[None]:
        """For as long as `source` writes here."""
        self._source = source
        if self._full:
            source.hold()
        try:
            yield
        finally:
            self._source = None
            source.let_go()

    # ---- from the transport

    def full(self) -> None:
        self._full = True
        if self._source is not None:
            self._source.hold()

    def drained(self) -> None:
        self._full = False
        if self._source is not None:
            self._source.let_go()
