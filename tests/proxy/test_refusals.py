"""Errors in the shape of the route that was asked."""

from __future__ import annotations

import json

import pytest

from llamad.errors import NotFoundError, RequestError, UnavailableError
from llamad.proxy.refusals import error_frame, refusal

MISSING = NotFoundError("cannot find model 'x'", kind="model-not-found")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messagesx", "/"])
def test_openai_by_default(path: str) -> None:
    assert json.loads(refusal(path, MISSING.body())) == MISSING.body()
    assert error_frame(path, MISSING) == b"data: " + refusal(path, MISSING.body()) + b"\n\n"


@pytest.mark.parametrize(
    "path", ["/v1/messages", "/v1/messages/", "/v1/messages/count_tokens", "/v1/messages/batches"]
)
def test_anthropics_on_its_routes(path: str) -> None:
    document = {
        "type": "error",
        "error": {
            "type": "not_found_error",
            "message": "cannot find model 'x'",
            "kind": "model-not-found",
            "details": {"error_code": "model-not-found"},
        },
    }
    assert json.loads(refusal(path, MISSING.body())) == document
    name, data, *rest = error_frame(path, MISSING).split(b"\n")
    assert name == b"event: error"
    assert json.loads(data.removeprefix(b"data: ")) == document
    assert rest == [b"", b""]


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (408, "timeout_error"),
        (409, "conflict_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_anthropics_words(status: int, word: str) -> None:
    error = RequestError("cannot", status=status)
    assert json.loads(refusal("/v1/messages", error.body()))["error"]["type"] == word


def test_words_that_its_clients_look_for() -> None:
    error = RequestError("cannot fit a prompt of 9 tokens", kind="exceed-context-size")
    message = json.loads(refusal("/v1/messages", error.body()))["error"]["message"]
    assert message == "prompt is too long: cannot fit a prompt of 9 tokens"


def test_numbers_go_along() -> None:
    error = UnavailableError("cannot load it", kind="no-room", details={"need_bytes": 7})
    assert json.loads(refusal("/v1/messages", error.body()))["error"]["need_bytes"] == 7
