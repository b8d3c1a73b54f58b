"""Anthropic's routes at an instance's port: named events, pings, and errors in their shape at every stage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from llamad.engine.vocabulary import Failed
from llamad.errors import UnavailableError
from tests.process.front_kit import BODY_BYTES_MAX, N_CTX, TOKEN, RunningFront
from tests.process.test_instance_front import Call, submitted

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
MESSAGES = "/v1/messages"
BODY: dict[str, Any] = {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**BODY, "stream": True}


@pytest.fixture
def front() -> Iterator[RunningFront]:
    with RunningFront() as front:
        yield front


def events(text: str) -> list[dict[str, Any]]:
    """The documents of named events, whose names are their types."""
    documents = []
    for part in text.split("\n\n")[:-1]:
        name, data = part.split("\n")
        documents.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {documents[-1]['type']}"
    return documents


def test_a_message(front: RunningFront) -> None:
    call = Call(front, MESSAGES, BODY)
    (request,) = submitted(front)
    assert bytes(request.tokens).decode() == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert request.max_tokens == 9
    front.engine.say(request, "Hel")
    front.engine.say(request, "lo", reason="stop")
    document = call.result().json()
    assert document["content"] == [{"type": "text", "text": "Hello"}]
    assert document["stop_reason"] == "end_turn"
    assert document["usage"]["input_tokens"] == len(request.tokens)


def test_a_stream(front: RunningFront) -> None:
    call = Call(front, MESSAGES, STREAM)
    (request,) = submitted(front)
    front.engine.say(request, "Hel")
    front.engine.say(request, "lo", reason="length")
    answer = call.result()
    assert answer.headers["content-type"] == "text/event-stream"
    start, *_, last, end = events(answer.text)
    assert request.tell_timings
    assert start["type"] == "message_start"
    assert last["delta"]["stop_reason"] == "max_tokens"
    assert end == {"type": "message_stop"}
    assert answer.text.endswith("}\n\n")


def test_a_silent_stream_pings_by_an_event(front: RunningFront) -> None:
    call = Call(front, MESSAGES, {**STREAM, "sse_ping_interval": 1}, stream=True)
    (request,) = submitted(front)
    lines = call.result().iter_lines(chunk_size=1)
    assert (next(lines), next(lines)) == (b"event: ping", b'data: {"type":"ping"}')
    front.engine.say(request, "x", reason="stop")
    assert b"event: message_stop" in list(lines)


def test_a_failure_in_a_stream_is_its_last_event(front: RunningFront) -> None:
    call = Call(front, MESSAGES, STREAM)
    (request,) = submitted(front)
    front.engine.say(request, "Hel")
    front.engine.deliver([Failed(request.id, UnavailableError("cannot go on", kind="broken"))])
    last = events(call.result().text)[-1]
    assert last["type"] == "error"
    assert (last["error"]["type"], last["error"]["kind"]) == ("overloaded_error", "broken")


def test_a_failure_before_the_first_text_has_its_own_status(front: RunningFront) -> None:
    call = Call(front, MESSAGES, STREAM)
    (request,) = submitted(front)
    refused = UnavailableError("cannot now", kind="queue-full", status=429, retry_after_s=2.0)
    front.engine.deliver([Failed(request.id, refused)])
    answer = call.result()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert answer.json()["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "word"),
    [
        ("POST", MESSAGES, b"{", 400, "invalid_request_error"),
        ("POST", MESSAGES, b"{}", 400, "invalid_request_error"),
        (
            "POST",
            MESSAGES,
            json.dumps({**BODY, "system": "x" * N_CTX}).encode(),
            400,
            "invalid_request_error",
        ),
        ("POST", MESSAGES, b"x" * (BODY_BYTES_MAX + 1), 413, "request_too_large"),
        ("POST", f"{MESSAGES}/count_tokens", b'{"messages": 5}', 400, "invalid_request_error"),
        ("POST", f"{MESSAGES}/batches", b"{}", 404, "not_found_error"),
        ("GET", MESSAGES, b"", 405, "invalid_request_error"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_errors_have_their_shape(
    front: RunningFront, method: str, path: str, body: bytes, status: int, word: str
) -> None:
    answer = requests.request(method, front.url + path, data=body, headers=AUTHORIZED, timeout=5)
    assert answer.status_code == status
    document = answer.json()
    assert document["type"] == "error"
    assert document["error"]["type"] == word
    assert "cannot " in document["error"]["message"]


def test_tokens_are_counted_and_nothing_is_generated(front: RunningFront) -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    answer = requests.post(
        front.url + f"{MESSAGES}/count_tokens",
        json=BODY | {"max_tokens": None},
        headers=AUTHORIZED,
        timeout=5,
    )
    assert answer.json() == {"input_tokens": len(prompt)}
    assert front.engine.submitted == []
