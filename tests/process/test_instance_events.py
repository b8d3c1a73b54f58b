"""Streams: that one is alive can be seen, also where what comes is held back."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from llamad.api.answer import Head
from llamad.api.chat import ChatDialect
from llamad.api.chat_parser import ChatParser
from llamad.api.families import GENERIC
from llamad.api.openai import Streaming
from llamad.api.tools import Tool
from llamad.child.events import events
from llamad.child.work import Part, Work
from llamad.engine.vocabulary import Finished, Text, Timings

PING_S = 0.01


class SlowWork:
    """A part comes after the ping's interval, each time."""

    def __init__(self, *texts: str) -> None:
        self._left: list[Part] = [(0, Text(1, text)) for text in texts]
        self._left.append((0, Finished(1, "stop", "", Timings(), 0)))

    @property
    def ended(self) -> bool:
        return not self._left

    async def parts(self, within_s: float | None = None) -> list[Part]:
        await asyncio.sleep(2 * PING_S)
        return [self._left.pop(0)]


def stream(*texts: str) -> list[bytes]:
    async def collect() -> list[bytes]:
        tools = (Tool("now", "", {}),)
        dialect = ChatDialect(
            Head("id", 1, "m", "f"), Streaming(wanted=True), lambda: ChatParser(GENERIC, tools)
        )
        work = cast(Work, SlowWork(*texts))
        return [frame async for frame in events(cast(Any, dialect), work, [], PING_S)]

    return asyncio.run(collect())


def test_text_that_is_held_back_does_not_make_a_stream_silent() -> None:
    frames = stream("<tool_call>", '\n{"name": ', '"nobody"}')
    assert frames.count(b": ping\n\n") >= 2
    told = b"".join(frames).decode().split("data: ")
    deltas = [
        json.loads(frame.partition("\n")[0])["choices"][0]["delta"]
        for frame in told
        if frame.startswith('{"choices":[{')
    ]
    assert "".join(delta.get("content") or "" for delta in deltas) == '<tool_call>\n{"name": "nobody"}'


def test_text_that_is_certain_needs_no_pings() -> None:
    frames = stream("one", "two")
    assert frames.count(b": ping\n\n") <= 1
    assert frames[-1].endswith(b"data: [DONE]\n\n")
