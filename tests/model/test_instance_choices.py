"""Several answers to one prompt over HTTP: their indexes, their texts, their costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.test_instance_serving import QUESTION, STORY, Instance, loaded

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def two_slots(smollm2: Path) -> Iterator[Instance]:
    with loaded(smollm2, {"ctx-size": 1024, "parallel": 2}) as instance:
        yield instance


def test_a_chat_with_several_choices(two_slots: Instance) -> None:
    body = {"messages": QUESTION, "max_tokens": 16, "n": 3, "seed": 5, "temperature": 1.2}
    whole = two_slots.post("/v1/chat/completions", body)
    texts = [choice["message"]["content"] for choice in whole["choices"]]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert len(set(texts)) > 1
    one = two_slots.post("/v1/chat/completions", body | {"n": 1})
    assert whole["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert whole["usage"]["completion_tokens"] > one["usage"]["completion_tokens"]

    events = two_slots.stream("/v1/chat/completions", body | {"stream_options": {"include_usage": True}})
    parts = {0: "", 1: "", 2: ""}
    for event in events[:-1]:
        for choice in event["choices"]:
            parts[choice["index"]] += choice["delta"].get("content") or ""
    assert all(parts.values())
    assert events[-2]["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert events[-1] == "[DONE]"


def test_two_choices_for_each_of_two_prompts(two_slots: Instance) -> None:
    body = {"prompt": ["One, two, three,", "A, B, C,"], "n": 2, "max_tokens": 4, "temperature": 0}
    choices = two_slots.post("/v1/completions", body)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert choices[0]["text"] == choices[1]["text"] != choices[2]["text"] == choices[3]["text"]
    native = two_slots.post("/completion", {"prompt": STORY, "n_cmpl": 2, "n_predict": 4})
    assert [document["index"] for document in native] == [0, 1]
