"""What settings and requests must be before llama.cpp sees them: it would answer some faults by ending the process."""

from __future__ import annotations

import logging
from pathlib import Path

from llamad.engine.embedding import POOLINGS
from llamad.engine.orders import SlotOrder
from llamad.engine.placement import SPLIT_MODES
from llamad.engine.vocabulary import (
    Adapters,
    EmbedRequest,
    EngineSettings,
    GenerateRequest,
    ModelFacts,
    Request,
)
from llamad.errors import ConfigError, LlamadError, RequestError, UnavailableError

log = logging.getLogger(__name__)

FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
# Rarely used parameters that EngineSettings.extra may carry: name in llama.cpp's structures -> type.
EXTRA_MODEL: dict[str, type] = {"check_tensors": bool}
EXTRA_CONTEXT: dict[str, type] = {
    "rope_freq_base": float,
    "rope_freq_scale": float,
    "yarn_ext_factor": float,
    "yarn_attn_factor": float,
    "yarn_beta_fast": float,
    "yarn_beta_slow": float,
    "yarn_orig_ctx": int,
    "offload_kqv": bool,
    "op_offload": bool,
}


def check_settings(settings: EngineSettings, sequences_max: int) -> None:
    """Raise ConfigError for settings that cannot work. `sequences_max`: llama.cpp's own limit of slots."""
    reason = _settings_fault(settings, min(sequences_max, settings.n_batch, settings.n_ubatch))
    if reason:
        raise ConfigError(f"cannot load {settings.path}: {reason}")


def _settings_fault(settings: EngineSettings, slots_max: int) -> str:
    cache_types = {settings.cache_type_k, settings.cache_type_v}
    if not Path(settings.path).is_file():
        return "there is no such file"
    for adapter in settings.adapters:
        if not Path(adapter.path).is_file():
            return f"there is no adapter {adapter.path}"
    if not 1 <= settings.n_parallel <= slots_max:
        return f"parallel {settings.n_parallel} is not in 1..{slots_max} (llama.cpp's limit, batch-size, ubatch-size)"
    if settings.n_ctx < 0:
        return f"ctx-size {settings.n_ctx} is negative"
    if settings.flash_attn not in FLASH_ATTN:
        return f"flash-attn {settings.flash_attn!r} is none of {', '.join(FLASH_ATTN)}"
    if not cache_types <= set(CACHE_TYPES):
        return f"cache type {', '.join(sorted(cache_types))} is none of {', '.join(CACHE_TYPES)}"
    if settings.split_mode not in SPLIT_MODES:
        return f"split-mode {settings.split_mode!r} is none of {', '.join(SPLIT_MODES)}"
    if settings.tensor_split and not any(share > 0 for share in settings.tensor_split):
        return "tensor-split has no share above 0"
    if settings.pooling and settings.pooling not in POOLINGS:
        return f"pooling {settings.pooling!r} is none of {', '.join(POOLINGS)}"
    unknown = settings.extra.keys() - EXTRA_MODEL.keys() - EXTRA_CONTEXT.keys()
    return f"unknown parameter {', '.join(sorted(unknown))}" if unknown else ""


def check(request: Request, facts: ModelFacts) -> LlamadError | None:
    """What is wrong with a request for this model, if anything is."""
    if isinstance(request, EmbedRequest):
        return check_embedding(request, facts)
    if isinstance(request, SlotOrder):
        return check_order(request, facts)
    return check_request(request, facts)


def check_request(request: GenerateRequest, facts: ModelFacts) -> LlamadError | None:
    """The client's fault, if there is one."""
    if not facts.generates:
        return unable(f"generate: a model of the architecture {facts.architecture} makes vectors only")
    n_prompt = len(request.tokens)
    if n_prompt == 0:
        return RequestError("cannot answer an empty prompt: it has 0 tokens", kind="empty-prompt")
    if n_prompt >= facts.n_prompt_max:
        return context_full(n_prompt, facts.n_prompt_max)
    if request.id_slot >= facts.n_slots:
        return _no_slot(request.id_slot, facts.n_slots)
    return check_adapters(request.adapters or (), facts) or _check_token_ids(request, facts.n_vocab)


def check_order(order: SlotOrder, facts: ModelFacts) -> LlamadError | None:
    """The client's fault, if there is one."""
    if not 0 <= order.slot < facts.n_slots:
        return _no_slot(order.slot, facts.n_slots)
    state = order.state
    if state is None:
        return None
    if not 0 < len(state.tokens) <= facts.n_ctx_slot:
        return context_full(len(state.tokens), facts.n_ctx_slot)
    return check_adapters(state.adapters, facts)


def _no_slot(slot: int, n_slots: int) -> RequestError:
    return RequestError(f"cannot use slot {slot}: there are {n_slots}, counted from 0")


def check_adapters(adapters: Adapters, facts: ModelFacts) -> RequestError | None:
    """The client's fault, if it names an adapter that there is none of."""
    n_adapters = len(facts.adapters)
    unknown = next((id for id, _ in adapters if not 0 <= id < n_adapters), None)
    if unknown is None:
        return None
    return RequestError(
        f"cannot use adapter {unknown}: this model has {n_adapters}, counted from 0",
        kind="bad-field",
        details={"param": "lora"},
    )


def check_embedding(request: EmbedRequest, facts: ModelFacts) -> LlamadError | None:
    """The client's fault, if there is one."""
    if facts.pooling is None:
        return unable("embed: the model is loaded without embeddings (llama-server's --embeddings)")
    for index, tokens in enumerate(request.inputs):
        if not tokens:
            return RequestError(f"cannot embed input {index}: it has 0 tokens", kind="empty-prompt")
        if len(tokens) > facts.n_ctx_slot:
            return input_too_long(f"input {index}", len(tokens), facts.n_ctx_slot)
        if min(tokens) < 0 or max(tokens) >= facts.n_vocab:
            return RequestError(
                f"cannot embed input {index}: it has tokens outside the vocabulary of {facts.n_vocab}"
            )
    return check_adapters(request.adapters or (), facts)


def input_too_long(what: str, n_tokens: int, n_ctx: int) -> RequestError:
    """An input of `n_tokens` that has to fit the `n_ctx` tokens that there are."""
    return RequestError(
        f"cannot fit {what} of {n_tokens} tokens: it exceeds the available context size of {n_ctx} tokens",
        kind="exceed-context-size",
        details={"n_prompt_tokens": n_tokens, "n_ctx": n_ctx},
    )


def unable(what: str) -> LlamadError:
    """The refusal of what this model, as it is loaded, cannot do."""
    return LlamadError(f"cannot {what}", kind="not-supported", status=501)


def context_full(n_prompt: int, n_ctx: int) -> RequestError:
    """A prompt of `n_prompt` tokens is too long for the `n_ctx` tokens that there are.

    Clients know llama-server's words, "exceeds the available context size", and make their conversations shorter.
    """
    return RequestError(
        f"cannot fit a prompt of {n_prompt} tokens and its answer: it exceeds the available context size of {n_ctx} tokens",
        kind="exceed-context-size",
        details={"n_prompt_tokens": n_prompt, "n_ctx": n_ctx},
    )


def queue_full(n_alive: int) -> LlamadError:
    """The refusal when `n_alive` requests are in the engine and no more may wait."""
    return UnavailableError(
        f"cannot take another request: {n_alive} are running or waiting",
        kind="queue-full",
        retry_after_s=1.0,
    )


def decode_failed(reason: str) -> LlamadError:
    """The last word of a request whose evaluation has failed."""
    return LlamadError(f"cannot generate: {reason}", kind="decode-failed")


def as_failure(error: Exception) -> LlamadError:
    """The last word of a request that could not be prepared; what nobody foresaw is in the log."""
    if isinstance(error, LlamadError):
        return error
    log.error("cannot prepare a request", exc_info=error)
    return LlamadError(f"cannot prepare the request: {type(error).__name__}", kind="internal")


def stopping() -> LlamadError:
    """The last word of requests that an engine still has when it stops."""
    return UnavailableError("cannot finish the request: the model is being stopped", kind="stopping")


def _check_token_ids(request: GenerateRequest, n_vocab: int) -> RequestError | None:
    biased = (token for token, _ in request.sampling.logit_bias)
    for name, tokens in (("the prompt", request.tokens), ("logit_bias", tuple(biased))):
        for token in (min(tokens, default=0), max(tokens, default=0)):
            if not 0 <= token < n_vocab:
                return RequestError(f"cannot use token {token} in {name}: the vocabulary has {n_vocab}")
    return None
