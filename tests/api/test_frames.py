"""Frames of a stream are the same bytes, by a stencil or by a document."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as some

from llamad.api.answer import Dialect, Head
from llamad.api.chat import ChatDialect
from llamad.api.chat_parser import ChatParser, PlainParser
from llamad.api.notations import GENERIC
from llamad.api.openai import CompletionDialect, Streaming
from llamad.api.sse import Stencil, frame
from llamad.api.tools import Tool
from llamad.engine.vocabulary import Likelihood, Text, Timings

PIECES = [
    "<think>",
    "</think>",
    "<tool_call>",
    '{"name": "now", "arguments": {',
    "}}",
    "</tool_call>",
    "\n",
    "",
]
TOLD = (Likelihood(65, b"A", -0.5, ()),)


@some.composite
def texts(draw: some.DrawFn) -> Text:
    text = draw(some.text(max_size=8) | some.sampled_from(PIECES))
    likelihoods = draw(some.sampled_from([(), (), TOLD]))
    return Text(
        1, text, 1, likelihoods, timings=draw(some.sampled_from([None, None, Timings(6, 2, 3, 4, 5)]))
    )


def chat(head: Head) -> Dialect:
    tools = (Tool("now", "", {}),)
    make = lambda: ChatParser(GENERIC, tools, make_id=lambda size: "i" * size)  # noqa: E731
    return ChatDialect(head, Streaming(wanted=True), make, 3)


def plain(head: Head) -> Dialect:
    return ChatDialect(head, Streaming(wanted=True), PlainParser, 3)


def completion(head: Head) -> Dialect:
    return CompletionDialect(head, Streaming(wanted=True))


@given(
    make=some.sampled_from([chat, plain, completion]),
    model=some.text(max_size=8),
    said=some.lists(some.tuples(some.integers(0, 2), texts()), max_size=12),
)
def test_frames_are_those_of_the_documents(
    make: Callable[[Head], Dialect], model: str, said: list[tuple[int, Text]]
) -> None:
    head = Head("id", 1, model, "b1")
    by_frames, by_documents = make(head), make(head)
    for index, text in said:
        documents = by_documents.piece(index, text)
        assert by_frames.frames(index, text) == b"".join(map(frame, documents))


@given(some.text(), some.text())
def test_a_stencil_is_filled_with_any_text(around: str, text: str) -> None:
    stencil = Stencil(lambda text: frame({"a": around, "text": text, "b": [around]}))
    filled = stencil.filled(text)
    assert filled == frame({"a": around, "text": text, "b": [around]})
    assert msgspec.json.decode(filled.removeprefix(b"data: "))["text"] == text
