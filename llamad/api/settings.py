"""llama-server's `generation_settings`, and the `params` of `/props` and `/slots`: what a request is generated with."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from llamad.api.adapters import adapters_document
from llamad.api.generation import Generation
from llamad.engine.vocabulary import SamplingParams

_BREAKERS = "dry_sequence_breakers"


def generation_settings(generation: Generation) -> dict[str, Any]:
    """All of them. JSON has no infinity: a forbidden token's bias is false, as requests say it."""
    rules = generation.rules
    return outline(generation) | {
        _BREAKERS: generation.sampling.dry_sequence_breakers,
        "stop": generation.stop,
        "logit_bias": [
            {"bias": False if bias == float("-inf") else bias, "token": token}
            for token, bias in generation.sampling.logit_bias
        ],
        "grammar": rules.text if rules and rules.kind != "json_schema" else "",
        "json_schema": msgspec.Raw(rules.text.encode()) if rules and rules.kind == "json_schema" else None,
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [token for token, _ in generation.shown],
    }


def outline(generation: Generation) -> dict[str, Any]:
    """Without texts and lists that a request may make long."""
    wanted, extras = generation.wanted, generation.extras
    return _sampling(generation.sampling) | {
        "max_tokens": generation.max_tokens,
        "n_predict": generation.max_tokens,
        "n_keep": generation.n_keep,
        "n_discard": generation.n_discard,
        "stream": generation.stream,
        "n_probs": wanted.n if wanted else 0,
        "post_sampling_probs": wanted is not None and wanted.after_sampling,
        "cache_prompt": generation.cache_prompt,
        "chat_format": "Content-only",
        "reasoning_format": "deepseek",
        "reasoning_in_content": False,
        "generation_prompt": "",
        "speculative.types": ",".join(generation.speculation) or "none",
        "timings_per_token": extras.timings_per_token,
        "backend_sampling": False,
        "lora": adapters_document(generation.adapters),
    }


def _sampling(params: SamplingParams) -> dict[str, Any]:
    settings = asdict(params)
    del settings["logit_bias"], settings[_BREAKERS]
    return settings
