"""Requests that cannot be served: the right status, at once, and a message that says why."""

from __future__ import annotations

import time
from typing import Any

import pytest
import requests

from tests.harness import Llamad

pytestmark = pytest.mark.model

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def error_of(response: requests.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, f"{response.status_code}: {response.text[:500]}"
    assert response.headers["Content-Type"].startswith("application/json")
    assert response.headers["X-Request-Id"]
    error: dict[str, Any] = response.json()["error"]
    assert error["code"] == status
    assert error["type"]
    assert error["kind"]
    assert error["message"].startswith("cannot ")
    return error


def test_a_missing_model_is_400(llamad: Llamad) -> None:
    assert "model" in error_of(llamad.post(CHAT, {"messages": MESSAGES}), 400)["message"]


@pytest.mark.parametrize("model", [7, None, ["smol"], {"id": "smol"}, True, ""])
def test_a_mistyped_model_is_400(llamad: Llamad, model: Any) -> None:
    assert "model" in error_of(llamad.post(CHAT, {"model": model, "messages": MESSAGES}), 400)["message"]


@pytest.mark.parametrize("model", ["nobody", "SMOL", "smol ", "../smol", "smöl", "a/b:c"])
def test_an_unknown_model_is_404(llamad: Llamad, model: str) -> None:
    error = error_of(llamad.post(CHAT, {"model": model, "messages": MESSAGES}), 404)
    assert error["kind"] == "model-not-found"
    assert repr(model) in error["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"model": "smol"', b"[]", b'"smol"', b"\x00", b"\xff\xfe", b"{" * 5000]
)
def test_broken_json_is_400(llamad: Llamad, body: bytes) -> None:
    error_of(llamad.post(CHAT, body), 400)


@pytest.mark.parametrize("messages", [None, [], "hi", [1], [{"role": "user"}], [{"content": "hi"}]])
def test_messages_that_are_none_are_400(llamad: Llamad, messages: Any) -> None:
    error_of(llamad.post(CHAT, {"model": "smol", "messages": messages}), 400)


def test_a_body_of_40_mb_is_read_and_refused_for_its_length(llamad: Llamad) -> None:
    text = "word " * (8 << 20)
    started_s = time.monotonic()
    error = error_of(
        llamad.post(CHAT, {"model": "smol", "messages": [{"role": "user", "content": text}]}), 400
    )
    assert error["message"].count("cannot") == 1
    assert str(16 << 20) in error["message"]
    assert time.monotonic() - started_s < 60
    assert llamad.chat("smol", "hi", max_tokens=2).status_code == 200


def test_a_body_over_the_limit_is_413_before_it_is_read(presets: str) -> None:
    with Llamad(presets, "--max-body-bytes", "1MiB") as daemon:
        error = error_of(daemon.post(CHAT, b" " * (2 << 20)), 413)
        assert str(1 << 20) in error["message"] or "1.0 MiB" in error["message"]
        assert requests.get(f"{daemon.url}/health", timeout=5).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_an_over_long_prompt_is_400_with_both_numbers(llamad: Llamad, stream: bool) -> None:
    messages = [{"role": "user", "content": "count " * 3000}]
    error = error_of(llamad.post(CHAT, {"model": "smol", "messages": messages, "stream": stream}), 400)
    assert error["n_prompt_tokens"] > 3000
    assert error["n_ctx"] in (512, 2048)
    assert str(error["n_prompt_tokens"]) in error["message"]
    assert str(error["n_ctx"]) in error["message"]


def test_an_unknown_route_is_404_and_a_wrong_method_405(llamad: Llamad) -> None:
    error_of(requests.get(f"{llamad.url}/v1/nothing", timeout=10), 404)
    error_of(requests.get(f"{llamad.url}{CHAT}", timeout=10), 405)


def test_reads_load_nothing(presets: str) -> None:
    with Llamad(presets) as daemon:
        for path in ("/health", "/v1/models", "/models", "/v1/models/smol", "/props"):
            assert requests.get(daemon.url + path, timeout=10).status_code == 200, path
        error_of(requests.get(f"{daemon.url}/props?model=smol", timeout=10), 409)
        assert daemon.state("smol") == "unloaded"
        assert daemon.state("gemma") == "unloaded"
