"""The body of a streamed answer: frames of server-sent events, made as the engine speaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from llamad.api.answer import Dialect
from llamad.child.work import Part, Work
from llamad.engine.vocabulary import Finished, Progress, Text
from llamad.errors import LlamadError


async def events(
    dialect: Dialect, work: Work, first: list[Part], ping_s: float | None
) -> AsyncIterator[bytes]:
    """All frames, those of one step together, and a ping where none goes out for `ping_s`: because nothing comes, or
    because what comes is held back until it is certain what it is.

    A failure on the way is a last frame, and then no end marker.
    """
    framing, now = dialect.framing, asyncio.get_running_loop().time
    last_frame_at = now()
    finished: list[Finished] = []
    documents: list[Any] = dialect.opening()
    parts = first
    while True:
        for index, output in parts:
            if isinstance(output, Text):
                documents += dialect.piece(index, output)
            elif isinstance(output, Progress):
                documents += dialect.progress(index, output)
            else:
                finished.append(output)
                documents += dialect.ending(index, output)
        if work.ended:
            break
        if documents and parts:
            yield b"".join(map(framing.frame, documents))
            documents, last_frame_at = [], now()
        elif not parts or (ping_s is not None and now() - last_frame_at >= ping_s):
            yield framing.ping
            last_frame_at = now()
        try:
            parts = await work.parts(ping_s)
        except LlamadError as error:
            yield framing.frame(dialect.failure(error))
            return
    documents += dialect.closing(finished)
    yield b"".join(map(framing.frame, documents)) + framing.done
