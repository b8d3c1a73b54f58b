"""Filling in, with a model whose vocabulary has the tokens for it, and with one whose has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.model.generated import generated
from tests.model.test_instance_serving import loaded, text_of

pytestmark = pytest.mark.model

GAP = {"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n\nprint(add(1, 2))\n"}
SURE: dict[str, Any] = {
    "temperature": 0,
    "seed": 1,
    "n_predict": 8,
    "cache_prompt": False,
    "ignore_eos": True,
}


def test_fills_in_whole_and_streamed() -> None:
    with loaded(generated("tiny"), {"ctx-size": 512, "parallel": 1}) as tiny:
        answer = tiny.post("/infill", {**GAP, **SURE})
        assert answer["tokens_predicted"] == 8
        assert answer["prompt"].endswith("<|fim_middle|>")
        begun, _, rest = answer["prompt"].partition("<|fim_suffix|>")
        assert begun.endswith(GAP["input_prefix"])
        assert rest.removesuffix("<|fim_middle|>") == GAP["input_suffix"]
        assert text_of(tiny.stream("/infill", {**GAP, **SURE})) == answer["content"]
        chosen = tiny.post("/infill", {**GAP, **SURE, "response_fields": ["content"]})
        assert chosen == {"content": answer["content"]}
        lines = tiny.post(
            "/infill", {**GAP, **SURE, "n_predict": 64, "n_indent": 4, "logit_bias": [["\n", 100]]}
        )
        assert (lines["content"], lines["stop_type"]) == ("\n", "limit")
        long = tiny.post("/infill", {"input_prefix": "x = 1\n" * 4000, "input_suffix": "y\n" * 4000, **SURE})
        assert long["tokens_evaluated"] <= 512 - 8
        assert "param" in tiny.post("/infill", {"input_prefix": "x"}, status=400)["error"]


def test_the_suffix_may_come_first() -> None:
    with loaded(generated("tiny"), {"ctx-size": 512, "parallel": 1, "spm-infill": True}) as tiny:
        prompt = tiny.post("/infill", {**GAP, **SURE})["prompt"]
    assert prompt.index("<|fim_suffix|>") < prompt.index("<|fim_prefix|>")


def test_a_model_without_the_tokens_says_which(smollm2: Path) -> None:
    with loaded(smollm2, {"ctx-size": 256, "parallel": 1}) as smol:
        error = smol.post("/infill", GAP, status=501)["error"]
    assert (error["kind"], error["type"]) == ("not-supported", "not_supported_error")
    assert "no prefix and no suffix and no middle token" in error["message"]
