"""What is refused before llama.cpp sees it, with which words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamad.engine.checks import check, check_request, check_settings, queue_full
from llamad.engine.vocabulary import EmbedRequest, EngineSettings, GenerateRequest, SamplingParams
from llamad.errors import ConfigError
from tests.engine.fake import N_VOCAB, FakeBackend

FACTS = FakeBackend(n_slots=4, n_ctx=256).facts


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers() -> None:
    assert check_request(GenerateRequest(1, (1,) * 255), FACTS) is None
    error = check_request(GenerateRequest(1, (1,) * 256), FACTS)
    assert error is not None
    assert (error.status, error.kind) == (400, "exceed-context-size")
    assert error.details == {"n_prompt_tokens": 256, "n_ctx": 256}
    assert "256 tokens" in error.message


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (GenerateRequest(1, ()), "empty prompt"),
        (GenerateRequest(1, (1,), id_slot=4), "slot 4"),
        (GenerateRequest(1, (1, N_VOCAB)), f"token {N_VOCAB}"),
        (GenerateRequest(1, (-1, 3)), "token -1"),
        (GenerateRequest(1, (1,), sampling=SamplingParams(logit_bias=((999, 1.0),))), "logit_bias"),
    ],
)
def test_requests_that_llama_cpp_would_not_survive(request_: GenerateRequest, words: str) -> None:
    error = check_request(request_, FACTS)
    assert error is not None
    assert error.status == 400
    assert error.message.startswith("cannot")
    assert words in error.message


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (EmbedRequest(1, ((1,), ())), "input 1"),
        (EmbedRequest(1, ((1,) * 257,)), "257 tokens"),
        (EmbedRequest(1, ((1, N_VOCAB),)), "vocabulary"),
        (EmbedRequest(1, ((-1,),)), "vocabulary"),
        (EmbedRequest(1, ((1,),), adapters=((3, 1.0),)), "adapter 3"),
    ],
)
def test_inputs_that_llama_cpp_would_not_survive(request_: EmbedRequest, words: str) -> None:
    facts = replace(FACTS, pooling="mean")
    error = check(request_, facts)
    assert error is not None
    assert error.status == 400
    assert words in error.message
    assert check(EmbedRequest(1, ((1,) * 256,)), facts) is None


def test_what_a_model_cannot_do_is_not_implemented() -> None:
    for request_, facts in (
        (EmbedRequest(1, ((1,),)), FACTS),
        (GenerateRequest(1, (1,)), replace(FACTS, generates=False)),
    ):
        error = check(request_, facts)
        assert error is not None
        assert (error.status, error.kind) == (501, "not-supported")


def test_a_full_queue_says_when_to_come_back() -> None:
    error = queue_full(12)
    assert (error.status, error.kind, error.retry_after_s) == (503, "queue-full", 1.0)
    assert "12" in error.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": "/nowhere/x.gguf"}, "no such file"),
        ({"n_parallel": 0}, "parallel 0"),
        ({"n_parallel": 64, "n_batch": 32}, "1..32"),
        ({"n_parallel": 300}, "1..256"),
        ({"n_ctx": -1}, "ctx-size -1"),
        ({"flash_attn": "maybe"}, "'maybe'"),
        ({"cache_type_k": "q3"}, "q3"),
        ({"pooling": "max"}, "'max'"),
        ({"extra": {"warp": 9}}, "warp"),
    ],
)
def test_settings_that_cannot_work(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    good = EngineSettings(str(path), extra={"rope_freq_base": 1e6})
    check_settings(good, 256)
    with pytest.raises(ConfigError, match="cannot load") as caught:
        check_settings(replace(good, **change), 256)
    assert words in caught.value.message
