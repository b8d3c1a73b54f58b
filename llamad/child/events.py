"""The body of a streamed answer: frames of server-sent events, made as the engine speaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from llamad.api.answer import Dialect
from llamad.api.sse import DONE, PING, frame
from llamad.child.work import Part, Work
from llamad.engine.vocabulary import Finished, Text
from llamad.errors import LlamadError


async def events(
    dialect: Dialect, work: Work, first: list[Part], ping_s: float | None
) -> AsyncIterator[bytes]:
    """All frames, those of one step together, and a comment where nothing comes for `ping_s`.

    A failure on the way is a last frame, and then no end marker.
    """
    finished: list[Finished] = []
    documents: list[Any] = dialect.opening()
    parts = first
    while True:
        for index, output in parts:
            if isinstance(output, Text):
                documents.append(dialect.piece(index, output))
            else:
                finished.append(output)
                documents.append(dialect.ending(index, output))
        if work.ended:
            break
        if parts:
            yield _frames(documents)
            documents = []
        else:
            yield PING
        try:
            parts = await work.parts(ping_s)
        except LlamadError as error:
            yield frame(error.body())
            return
    documents += dialect.closing(finished)
    yield _frames(documents) + (DONE if dialect.ends_with_done else b"")


def _frames(documents: list[Any]) -> bytes:
    return b"".join(map(frame, documents))
