"""What an instance tells of itself, as llama-server does: `/props`, `/slots`, `/v1/models` and `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llamad.api.generation import Generation
from llamad.api.settings import outline
from llamad.engine.vocabulary import EngineStats, GenerateRequest, ModelFacts, SlotView


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Which of these routes are open: llama-server's `--slots`, `--props` (to change them) and `--metrics`."""

    slots: bool = True
    props: bool = False
    metrics: bool = False


def props(
    facts: ModelFacts,
    defaults: Generation,
    *,
    alias: str,
    path: str,
    template: str,
    tools_template: str | None = None,
    capabilities: Mapping[str, bool],
    build: str,
    endpoints: Endpoints = Endpoints(),
    is_sleeping: bool = False,
) -> dict[str, Any]:
    """`GET /props`: what this model is and what a request gets that says nothing."""
    return {
        "default_generation_settings": {"params": outline(defaults), "n_ctx": facts.n_ctx_slot},
        "total_slots": facts.n_slots,
        "model_alias": alias,
        "model_ftype": facts.ftype,
        "model_path": path,
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": endpoints.slots,
        "endpoint_props": endpoints.props,
        "endpoint_metrics": endpoints.metrics,
        "ui": False,
        "ui_settings": {},
        "chat_template": template,
        **({"chat_template_tool_use": tools_template} if tools_template else {}),
        "chat_template_caps": capabilities,
        "bos_token": facts.bos_token,
        "eos_token": facts.eos_token,
        "build_info": build,
        "is_sleeping": is_sleeping,
        "cors_proxy_enabled": False,
    }


def slot(view: SlotView) -> dict[str, Any]:
    """One entry of `GET /slots`: llama-server's names, and the slot's own state word."""
    document = {
        "id": view.id,
        "n_ctx": view.n_ctx,
        "speculative": view.speculative,
        "is_processing": view.request is not None,
        "id_task": -1 if view.request is None else view.request,
        "state": view.state,
        "prompt_tokens": view.prompt_tokens,
        "cached_tokens": view.cached_tokens,
        "next_token": [_next_token(view, -1)],
    }
    return document if view.asked is None else document | _request(view, view.asked)


def _next_token(view: SlotView, remaining: int) -> dict[str, Any]:
    return {
        "has_next_token": view.request is not None,
        "has_new_line": view.has_new_line,
        "n_remain": remaining,
        "n_decoded": view.predicted_tokens,
    }


def _request(view: SlotView, asked: GenerateRequest) -> dict[str, Any]:
    busy = view.request is not None
    remaining = asked.max_tokens - view.predicted_tokens if busy and asked.max_tokens >= 0 else -1
    return {
        "n_prompt_tokens": view.prompt_tokens + view.predicted_tokens if busy else view.cached_tokens,
        "n_prompt_tokens_processed": max(0, view.prompt_tokens - view.cached_tokens),
        "n_prompt_tokens_cache": view.cached_tokens if busy else 0,
        "params": outline(Generation.of(asked)),
        "next_token": [_next_token(view, remaining)],
    }


def models(facts: ModelFacts, *, name: str, created: int) -> dict[str, Any]:
    """`GET /v1/models` of an instance: the one that it serves, in OpenAI's form and in Ollama's."""
    return {
        "models": [_ollama(name)],
        "object": "list",
        "data": [
            {
                "id": name,
                "aliases": [],
                "tags": [],
                "object": "model",
                "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
                "created": created,
                "owned_by": "llamad",
                "meta": {
                    "vocab_type": facts.vocab_type,
                    "n_vocab": facts.n_vocab,
                    "n_ctx": facts.n_ctx_slot,
                    "n_ctx_train": facts.n_ctx_train,
                    "n_embd": facts.n_embd,
                    "n_params": facts.n_params,
                    "size": facts.size_bytes,
                    "ftype": facts.ftype,
                },
            }
        ],
    }


def _ollama(name: str) -> dict[str, Any]:
    """The fields that its clients look for; most say nothing in llama-server, too."""
    return {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "",
            "families": [""],
            "parameter_size": "",
            "quantization_level": "",
        },
    }


def metrics(stats: EngineStats) -> str:
    """`GET /metrics` in Prometheus's text format, under llama-server's names. Averages are since the start."""
    rows = (
        ("counter", "prompt_tokens_total", "Prompt tokens evaluated", stats.prompt_tokens),
        ("counter", "prompt_tokens_cached_total", "Prompt tokens reused", stats.cached_tokens),
        ("counter", "prompt_seconds_total", "Time spent on prompts", stats.prompt_ms / 1000),
        ("counter", "tokens_predicted_total", "Tokens generated", stats.predicted_tokens),
        ("counter", "tokens_predicted_seconds_total", "Time spent generating", stats.predicted_ms / 1000),
        ("counter", "n_decode_total", "Calls of llama_decode", stats.steps),
        ("counter", "spec_decode_num_drafts_total", "Drafts that were verified", stats.drafts),
        (
            "counter",
            "spec_decode_num_draft_tokens_total",
            "Drafted tokens that were verified",
            stats.drafted_tokens,
        ),
        (
            "counter",
            "spec_decode_num_accepted_tokens_total",
            "Drafted tokens that came true",
            stats.accepted_tokens,
        ),
        ("counter", "n_tokens_max", "Most tokens of a sequence", stats.sequence_tokens_max),
        ("gauge", "prompt_tokens_seconds", "Prompt tokens/s", _rate(stats.prompt_tokens, stats.prompt_ms)),
        ("gauge", "predicted_tokens_seconds", "Tokens/s", _rate(stats.predicted_tokens, stats.predicted_ms)),
        ("gauge", "requests_processing", "Requests in slots", stats.slots_busy),
        ("gauge", "requests_deferred", "Requests that wait", stats.queued),
        ("gauge", "n_busy_slots_per_decode", "Mean busy slots", stats.busy_steps / max(1, stats.steps)),
    )
    return "".join(
        f"# HELP llamacpp:{name} {text}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value:.10g}\n"
        for kind, name, text, value in rows
    )


def _rate(tokens: int, spent_ms: float) -> float:
    return tokens * 1000 / spent_ms if spent_ms else 0.0
