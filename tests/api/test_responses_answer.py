"""OpenAI's responses, event by event, and the same whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.api.answer import Head, Whole
from llamad.api.deltas import Content, Delta, Reasoning
from llamad.api.responses_answer import ResponsesDialect
from llamad.engine.vocabulary import Finished, Progress, Text
from llamad.errors import UnavailableError
from tests.api.test_messages_answer import ALL, BY_EOS, COST, Scripted

HEAD = Head("resp_abc", 1733000000, "the-alias", "b123")
BY_LENGTH = Finished(7, "length", "", COST, slot=2)
RESPONSE = {
    "id": "resp_abc",
    "object": "response",
    "created_at": 1733000000,
    "model": "the-alias",
    "error": None,
    "metadata": {},
}
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}


def dialect(deltas: tuple[Delta, ...] = ALL, held: int = 0) -> ResponsesDialect:
    return ResponsesDialect(HEAD, lambda: Scripted(deltas, held), {"metadata": {}}, lambda: 1733000009.5)


def streamed(writer: ResponsesDialect, pieces: int = len(ALL), finished: Finished = BY_EOS) -> list[Any]:
    events = writer.opening()
    for _ in range(pieces):
        events += writer.piece(0, Text(7, "x"))
    events += [*writer.ending(0, finished), *writer.closing([finished])]
    assert [event.pop("sequence_number") for event in events] == list(range(len(events)))
    return events


def whole(writer: ResponsesDialect, finished: Finished = BY_EOS, pieces: int = len(ALL)) -> dict[str, Any]:
    texts = tuple(Text(7, "x") for _ in range(pieces))
    return writer.whole([Whole("x" * pieces, finished, pieces=texts)])


def message(text: str, status: str = "completed", id: str = "msg_abc01") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": id, "role": "assistant", "content": [part], "status": status}


def call(id: str, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": id,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


OUTPUT = [
    {
        "type": "reasoning",
        "id": "rs_abc00",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
        "encrypted_content": "",
        "status": "completed",
    },
    message("I look."),
    call("fc_abc02", "c1", "weather", '{"city":"Łódź"}'),
    call("fc_abc03", "c2", "time", "{}"),
]


def test_all_events_in_their_order() -> None:
    created, progress, *items, last = streamed(dialect())
    assert created["type"] == "response.created"
    assert progress["type"] == "response.in_progress"
    assert created["response"] == progress["response"]
    assert (
        created["response"].items()
        >= {**RESPONSE, "status": "in_progress", "output": [], "usage": None}.items()
    )
    assert [event["type"].removeprefix("response.") for event in items] == [
        "output_item.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert [event["item"] for event in items if event["type"].endswith("item.done")] == OUTPUT
    assert [event["item"]["status"] for event in items if event["type"].endswith("item.added")] == [
        "in_progress"
    ] * 4
    assert [event["output_index"] for event in items] == [0] * 5 + [1] * 7 + [2] * 5 + [3] * 4
    assert items[13] == {
        "type": "response.function_call_arguments.delta",
        "item_id": "fc_abc02",
        "output_index": 2,
        "delta": '{"city":',
    }
    assert items[7] == {
        "type": "response.output_text.delta",
        "item_id": "msg_abc01",
        "output_index": 1,
        "content_index": 0,
        "delta": "I ",
        "logprobs": [],
    }
    assert last["type"] == "response.completed"
    assert last["response"] | {"timings": last["timings"]} == whole(dialect())


def test_the_whole_response() -> None:
    response = whole(dialect())
    assert response.items() >= RESPONSE.items()
    assert (response["status"], response["completed_at"]) == ("completed", 1733000009)
    assert (response["output"], response["usage"]) == (OUTPUT, USAGE)
    # Who counts tokens reads the end of an answer, and what a request has sent may say anything.
    assert list(response)[-2:] == ["usage", "timings"]


def test_an_answer_that_was_cut_is_incomplete() -> None:
    (*_, done, last) = streamed(dialect((Content("It is"),)), 1, BY_LENGTH)
    assert done["item"] == message("It is", "incomplete", "msg_abc00")
    assert last["type"] == "response.incomplete"
    response = last["response"]
    assert (response["status"], response["completed_at"]) == ("incomplete", None)
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


def test_an_empty_response() -> None:
    assert whole(dialect(()))["output"] == []
    assert [event["type"] for event in streamed(dialect(()))] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]


@given(st.lists(st.sampled_from(ALL[:4]), max_size=8), st.integers(0, 3), st.integers(0, 10))
def test_items_follow_each_other_whatever_comes_when(deltas: list[Delta], held: int, pieces: int) -> None:
    script, held = tuple(deltas), min(held, len(deltas))
    _, _, *items, last = streamed(dialect(script, held), pieces)
    opened, output = None, []
    for event in items:
        if event["type"].endswith("item.added"):
            assert opened is None
            opened = event["item"]["id"]
        elif event["type"].endswith("item.done"):
            assert opened == event["item"]["id"]
            opened = None
            output.append(event["item"])
        else:
            assert event["item_id"] == opened
        assert event["output_index"] == len(output) - (opened is None)
    assert opened is None
    assert last["response"]["output"] == output == whole(dialect(script, held), pieces=pieces)["output"]
    assert len({item["id"] for item in output}) == len(output)


@pytest.mark.parametrize(
    ("deltas", "tokens"),
    [((Reasoning("a"), Reasoning("b"), Content("c")), 2), ((Content("c"),), 0), ((Reasoning("a"),), 3)],
)
def test_tokens_of_thoughts(deltas: tuple[Delta, ...], tokens: int) -> None:
    response = whole(dialect(deltas), pieces=3)
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": tokens}


def test_a_failure_is_raised_by_the_official_client() -> None:
    writer = dialect()
    writer.opening()
    document = writer.failure(UnavailableError("cannot now", kind="sleeping"))
    assert (document["type"], document["sequence_number"], document["code"]) == ("error", 2, "sleeping")
    assert document["error"]["message"] == document["message"] == "cannot now"


def test_telemetry_hangs_on_the_events_that_there_are() -> None:
    writer = dialect()
    writer.opening()
    (progress,) = writer.progress(0, Progress(7, total=10, cached=4, processed=8, spent_ms=1.0))
    assert (progress["type"], progress["sequence_number"]) == ("response.in_progress", 2)
    assert progress["prompt_progress"]["processed"] == 8
    events = [event for _ in ALL for event in writer.piece(0, Text(7, "x", timings=COST))]
    assert all("timings" in event for event in events if event["type"].endswith(".delta"))
