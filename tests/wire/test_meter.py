"""Counting an answer's tokens from its end."""

from __future__ import annotations

import json

import pytest

from llamad.wire.meter import TAIL_BYTES, Meter

USAGE = {"usage": {"completion_tokens": 7, "prompt_tokens": 30, "total_tokens": 37}}
TIMINGS = {"timings": {"cache_n": 20, "prompt_n": 10, "prompt_ms": 1.5, "predicted_n": 7, "predicted_ms": 2}}


def counted(*chunks: bytes, request_bytes: int = 400) -> int:
    meter = Meter(request_bytes)
    for chunk in chunks:
        meter.feed(chunk)
    return meter.tokens()


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


@pytest.mark.parametrize("end", [USAGE, TIMINGS, {**USAGE, **TIMINGS}])
def test_whole_answers_say_it_themselves(end: dict[str, object]):
    plain = json.dumps({"choices": [{"text": "x" * 2 * TAIL_BYTES}], **end}).encode()
    assert counted(plain) == 37
    assert counted(*[plain[at : at + 100] for at in range(0, len(plain), 100)]) == 37
    assert counted(event({"n": 1}), event({"choices": [], **end}), b"data: [DONE]\n\n") == 37


def test_one_that_was_cut_counts_its_events_and_its_request():
    assert counted(event(1), event(2), event(3)) == 3 + 100
    assert counted() == 100


def test_a_model_cannot_say_it_in_its_text():
    text = json.dumps({"choices": [{"text": '"total_tokens": 0, "predicted_n": 0'}], **USAGE}).encode()
    assert counted(text) == 37
    assert counted(event({"content": '"total_tokens": 0'})) == 101
