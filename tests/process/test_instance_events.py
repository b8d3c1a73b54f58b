"""Streams: frames leave in order and as soon as they can, and that a stream is alive can be seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as some

from llamad.api.answer import Head
from llamad.api.chat import ChatDialect
from llamad.api.chat_parser import ChatParser, PlainParser
from llamad.api.deltas import Parser
from llamad.api.generation import Generation
from llamad.api.notations import GENERIC
from llamad.api.openai import Streaming
from llamad.api.tools import Tool
from llamad.child.events import EventStream
from llamad.child.work import Dispatcher, Work
from llamad.engine.vocabulary import Failed, Finished, Output, Request, Text, Timings
from llamad.errors import LlamadError
from tests.conftest import wait_until

PING_S = 0.01
LONG_S = 1000.0
PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
LAST = Finished(1, "stop", "", Timings(), 0)


class NoEngine:
    """What is submitted is answered by the test."""

    def submit(self, request: Request) -> None:
        pass

    def cancel(self, id: int) -> None:
        pass


class Client:
    """A stream and who reads it: all that Falcon does with a body."""

    def __init__(self, ping_s: float | None, make_parser: Callable[[], Parser] = PlainParser) -> None:
        self.sent: list[bytes] = []
        self.writable = asyncio.Event()
        self.writable.set()
        self.work = Work(NoEngine(), Dispatcher(asyncio.get_running_loop()))
        self.work.start(Generation(), [(1,)])
        dialect = ChatDialect(Head("id", 1, "m", "f"), Streaming(wanted=True), make_parser)
        self._make = lambda: EventStream(dialect, self.work, ping_s, self.send)

    async def send(self, event: dict[str, Any]) -> None:
        """As a server does it: a client that does not read holds up whoever sends."""
        if not self.writable.is_set():
            await self.writable.wait()
        self.sent.append(event["body"])

    async def read(self) -> None:
        stream = self._make()
        try:
            async for frames in stream:
                await self.send({"body": frames})
        finally:
            stream.stop()

    def says(self, *texts: str) -> None:
        """One step's outputs."""
        self.work.take([Text(1, text) for text in texts])

    def contents(self) -> list[str]:
        frames = b"".join(self.sent).decode().split("\n\n")
        chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame.startswith("data: {")]
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        return [delta["content"] for delta in deltas if delta.get("content")]


async def let_run() -> None:
    """Whoever can go on does."""
    for _ in range(5):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_until, condition)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    uvloop.run(main())


def test_what_a_step_brings_is_sent_before_any_task_runs() -> None:
    async def test() -> None:
        client = Client(LONG_S)
        client.says("one")
        reading = asyncio.create_task(client.read())
        await let_run()
        client.says("two", "three")
        assert client.contents() == ["one", "two", "three"]
        assert len(client.sent) == 2, "the frames of a step go out together"
        client.work.take([LAST])
        await reading
        assert b"".join(client.sent).endswith(DONE)
        assert PING not in client.sent

    run(test)


@given(some.lists(some.tuples(some.sampled_from(["step", "block", "free", "run"]), some.integers(1, 3))))
def test_frames_never_overtake_each_other(happenings: list[tuple[str, int]]) -> None:
    async def test() -> None:
        client, said = Client(LONG_S), 0
        client.says("0")
        reading = asyncio.create_task(client.read())
        for what, count in happenings:
            if what == "step":
                client.says(*(f"{said + n + 1}" for n in range(count)))
                said += count
            elif what == "block":
                client.writable.clear()
            elif what == "free":
                client.writable.set()
            else:
                await let_run()
        client.work.take([LAST])
        client.writable.set()
        await reading
        assert client.contents() == [str(n) for n in range(said + 1)]
        assert client.sent[-1].endswith(DONE)

    run(test)


def test_a_client_who_does_not_read_can_be_given_up() -> None:
    async def test() -> None:
        client = Client(LONG_S)
        client.says("one")
        reading = asyncio.create_task(client.read())
        await let_run()
        client.writable.clear()
        client.says("two")
        await let_run()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        client.writable.set()
        client.says("three")
        await let_run()
        assert client.contents() == ["one"]

    run(test)


def test_a_failure_is_the_last_frame() -> None:
    async def test() -> None:
        client = Client(LONG_S)
        client.says("one")
        reading = asyncio.create_task(client.read())
        await let_run()
        failed: list[Output] = [Text(1, "two"), Failed(1, LlamadError("cannot go on", kind="x"))]
        client.work.take(failed)
        await reading
        last = json.loads(client.sent[-1].removeprefix(b"data: "))
        assert last["error"]["message"] == "cannot go on"
        assert b'"two"' in client.sent[-2]

    run(test)


def test_a_bug_in_the_callback_ends_the_answer() -> None:
    class Broken(PlainParser):
        def push(self, text: str, /) -> list[Any]:
            if text == "two":
                raise ZeroDivisionError
            return super().push(text)

    async def test() -> None:
        client = Client(LONG_S, Broken)
        client.says("one")
        reading = asyncio.create_task(client.read())
        await let_run()
        client.says("two")
        with pytest.raises(ZeroDivisionError):
            await reading

    run(test)


# ---- pings


def test_text_that_is_held_back_does_not_make_a_stream_silent() -> None:
    async def test() -> None:
        tools = (Tool("now", "", {}),)
        client = Client(PING_S, lambda: ChatParser(GENERIC, tools))
        client.says("<tool_call>")
        reading = asyncio.create_task(client.read())
        for text in ('\n{"name": ', '"nobody"}'):
            pings = client.sent.count(PING)
            await until(lambda pings=pings: client.sent.count(PING) > pings)
            client.says(text)
        client.work.take([LAST])
        await reading
        assert "".join(client.contents()) == '<tool_call>\n{"name": "nobody"}'

    run(test)


def test_a_stream_of_which_nothing_has_come_begins_with_a_ping() -> None:
    async def test() -> None:
        client = Client(LONG_S)
        reading = asyncio.create_task(client.read())
        await let_run()
        assert client.sent == [PING]
        client.says("one")
        client.work.take([LAST])
        await reading
        assert client.contents() == ["one"]

    run(test)


def test_a_client_who_does_not_read_gets_no_pings() -> None:
    async def test() -> None:
        client = Client(PING_S)
        client.says("one")
        reading = asyncio.create_task(client.read())
        await until(lambda: PING in client.sent)
        client.writable.clear()
        await asyncio.sleep(5 * PING_S)
        before = client.sent.count(PING)
        client.writable.set()
        await let_run()
        assert client.sent.count(PING) <= before + 1
        client.work.take([LAST])
        await reading

    run(test)


def test_a_stream_that_is_stopped_leaves_no_timer() -> None:
    async def test() -> None:
        client = Client(PING_S)
        client.says("one")
        reading = asyncio.create_task(client.read())
        await until(lambda: PING in client.sent)
        reading.cancel()
        await asyncio.wait([reading])
        count = len(client.sent)
        await asyncio.sleep(5 * PING_S)
        assert len(client.sent) == count

    run(test)
