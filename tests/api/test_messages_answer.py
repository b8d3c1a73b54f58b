"""Anthropic's answers: blocks in their order, event by event, and the same whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.api.answer import Head, Whole
from llamad.api.deltas import CallArguments, CallBegun, Content, Delta, Reasoning
from llamad.api.messages_answer import MessagesDialect
from llamad.api.sse import ANTHROPIC
from llamad.engine.vocabulary import Finished, Text, Timings
from llamad.errors import UnavailableError

HEAD = Head("msg_1", 1733000000, "the-alias", "b123")
COST = Timings(prompt_tokens=10, cached_tokens=4, prompt_ms=60.0, predicted_tokens=5, predicted_ms=100.0)
BY_EOS = Finished(7, "stop", "", COST, slot=2)
USAGE = {
    "input_tokens": 6,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 4,
    "output_tokens": 5,
}
ALL: tuple[Delta, ...] = (
    Reasoning("Hm"),
    Reasoning("."),
    Content("I "),
    Content("look."),
    CallBegun(0, "c1", "weather"),
    CallArguments(0, '{"city":'),
    CallArguments(0, '"Łódź"}'),
    CallBegun(1, "c2", "time"),
    CallArguments(1, "{}"),
)


class Scripted:
    """Gives out the next delta for each character."""

    def __init__(self, deltas: tuple[Delta, ...], held: int = 0) -> None:
        self._now, self._held = list(deltas[: len(deltas) - held]), list(deltas[len(deltas) - held :])

    def push(self, text: str, /) -> list[Delta]:
        taken, self._now = self._now[: len(text)], self._now[len(text) :]
        return taken

    def finish(self) -> list[Delta]:
        return self._now + self._held


def dialect(deltas: tuple[Delta, ...] = ALL, held: int = 0, **more: Any) -> MessagesDialect:
    return MessagesDialect(HEAD, lambda: Scripted(deltas, held), 9, **more)


def streamed(writer: MessagesDialect, pieces: int = len(ALL), finished: Finished = BY_EOS) -> list[Any]:
    events = writer.opening()
    for _ in range(pieces):
        events += writer.piece(0, Text(7, "x", timings=COST))
    return [*events, *writer.ending(0, finished), *writer.closing([finished])]


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def test_all_events_in_their_order() -> None:
    opening, *blocks, last, end = streamed(dialect())
    assert opening == {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "the-alias",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": USAGE | {"output_tokens": 0},
        },
    }
    assert blocks == [
        start(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="Hm"),
        delta(0, type="thinking_delta", thinking="."),
        delta(0, type="signature_delta", signature=""),
        stop(0),
        start(1, type="text", text=""),
        delta(1, type="text_delta", text="I "),
        delta(1, type="text_delta", text="look."),
        stop(1),
        start(2, type="tool_use", id="c1", name="weather", input={}),
        delta(2, type="input_json_delta", partial_json='{"city":'),
        delta(2, type="input_json_delta", partial_json='"Łódź"}'),
        stop(2),
        start(3, type="tool_use", id="c2", name="time", input={}),
        delta(3, type="input_json_delta", partial_json="{}"),
        stop(3),
    ]
    assert last["type"] == "message_delta"
    assert last["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert last["usage"] == USAGE
    assert last["timings"]["predicted_n"] == 5
    assert end == {"type": "message_stop"}


def test_the_whole_message() -> None:
    message = dialect().whole([Whole("x", BY_EOS)])
    assert message["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Łódź"}},
        {"type": "tool_use", "id": "c2", "name": "time", "input": {}},
    ]
    assert (message["stop_reason"], message["usage"]) == ("tool_use", USAGE)


@given(st.lists(st.sampled_from(ALL[:4]), max_size=8), st.integers(0, 3), st.integers(0, 10))
def test_blocks_follow_each_other_whatever_comes_when(deltas: list[Delta], held: int, pieces: int) -> None:
    held = min(held, len(deltas))
    _, *blocks, _, _ = streamed(dialect(tuple(deltas), held), pieces)
    open_index, count = None, 0
    for event in blocks:
        if event["type"] == "content_block_start":
            assert open_index is None
            assert event["index"] == count
            open_index, count = count, count + 1
        else:
            assert event["index"] == open_index
        if event["type"] == "content_block_stop":
            open_index = None
    assert open_index is None
    said = "".join(event["delta"].get("text", "") for event in blocks if "delta" in event)
    assert said == "".join(delta.text for delta in deltas if isinstance(delta, Content))


def test_an_empty_message() -> None:
    assert dialect(()).whole([Whole("", BY_EOS)])["content"] == []
    assert [event["type"] for event in streamed(dialect(()))] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


@pytest.mark.parametrize(
    ("reason", "word", "expected"),
    [
        ("stop", "", ("end_turn", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("stop", "<|im_end|>", ("end_turn", None)),
        ("length", "", ("max_tokens", None)),
    ],
)
def test_why_it_ended(reason: str, word: str, expected: tuple[str, str | None]) -> None:
    finished = Finished(7, reason, word, COST, slot=0)
    message = dialect((Content("x"),), stops=("END",)).whole([Whole("x", finished)])
    assert (message["stop_reason"], message["stop_sequence"]) == expected
    *_, last, _ = streamed(dialect((Content("x"),), stops=("END",)), finished=finished)
    assert (last["delta"]["stop_reason"], last["delta"]["stop_sequence"]) == expected


def test_a_context_that_was_full() -> None:
    full = Finished(7, "length", "", COST, slot=0, truncated=True)
    assert dialect(()).whole([Whole("", full)])["stop_reason"] == "model_context_window_exceeded"
    # Something was dropped on the way, and then the limit came.
    at_limit = replace(full, timings=replace(COST, predicted_tokens=9))
    assert dialect(()).whole([Whole("", at_limit)])["stop_reason"] == "max_tokens"


def test_a_call_that_was_cut_short_has_no_input() -> None:
    deltas = (CallBegun(0, "c1", "weather"), CallArguments(0, '{"city": "Ł'))
    message = dialect(deltas).whole([Whole("x", Finished(7, "length", "", COST, slot=0))])
    assert message["content"] == [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]
    assert message["stop_reason"] == "max_tokens"


def test_thoughts_that_are_not_to_be_shown() -> None:
    deltas = (Reasoning("secret"), Content("x"))
    message = dialect(deltas, shows_thoughts=False).whole([Whole("x", BY_EOS)])
    assert message["content"][0] == {"type": "thinking", "thinking": "", "signature": ""}
    assert "secret" not in str(streamed(dialect(deltas, shows_thoughts=False)))


def test_a_failure_is_an_event_of_its_own() -> None:
    document = dialect().failure(UnavailableError("cannot now", kind="sleeping"))
    assert ANTHROPIC.frame(document).startswith(b'event: error\ndata: {"type":"error","error":{')
    assert document["error"]["type"] == "overloaded_error"
    assert ANTHROPIC.ping == b'event: ping\ndata: {"type":"ping"}\n\n'
