"""What is said to an engine and what it says back. The api package turns JSON into these and these into JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llamad.errors import LlamadError

SEED_RANDOM = 0xFFFFFFFF
"""llama.cpp's LLAMA_DEFAULT_SEED: draw one."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """llama-server's sampling parameters, with its defaults (tools/server/README, `/completion`).

    `temperature` <= 0 is greedy; `top_k` <= 0 means off; `top_p` 1.0 and `min_p` 0.0 are off. `repeat_last_n` -1 is
    the whole context, 0 is off. `logit_bias` maps token ids to an additive bias (`-inf` forbids the token).
    """

    seed: int = SEED_RANDOM
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One sequence to generate.

    `tokens`: the prompt, token ids, not empty. `max_tokens` < 0: until the context is full. `stop`: texts that end
    the answer and are not part of it. `cache_prompt`: a common prefix with what a slot holds may be reused.
    `id_slot` >= 0 asks for one slot.
    """

    id: int
    tokens: tuple[int, ...]
    max_tokens: int = -1
    stop: tuple[str, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    cache_prompt: bool = True
    id_slot: int = -1


@dataclass(frozen=True, slots=True)
class Timings:
    """What a request cost. Times in ms. `cached_tokens` of the prompt were reused, `prompt_tokens` is its length."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_ms: float = 0.0
    predicted_tokens: int = 0
    predicted_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Text:
    """New text of a request: whole characters, nothing that a stop string may still take back.

    `tokens` is how many tokens were generated since the last Text.
    """

    id: int
    text: str
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class Finished:
    """The last word on a request that ended well; remaining text came before in a Text.

    `reason`: `stop` (end of generation or a stop string, then `stop_word`), `length` (max_tokens or the context).
    `seed` is the one that was used, also where SEED_RANDOM was asked for: sending it again repeats the draws.
    """

    id: int
    reason: str
    stop_word: str
    timings: Timings
    slot: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """The last word on a request that could not be served. A cancelled request is not answered at all."""

    id: int
    error: LlamadError


Output = Text | Finished | Failed


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How to load and run one model: llama.cpp's parameters under llama-server's long names.

    `n_ctx` 0: the model's own training context, capped by `n_ctx_default_max` where it is larger. `n_parallel`: slots.
    `n_gpu_layers` -1: all. `cache_type_k/v`: ggml type names (`f16`, `q8_0`, ...). `threads` <= 0: the cores this
    process may run on.
    """

    path: str
    n_ctx: int = 0
    n_parallel: int = 4
    n_batch: int = 2048
    n_ubatch: int = 512
    n_gpu_layers: int = -1
    threads: int = 0
    threads_batch: int = 0
    flash_attn: str = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    kv_unified: bool = True
    use_mmap: bool = True
    use_mlock: bool = False
    swa_full: bool = False
    embedding: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot as `/slots` shows it."""

    id: int
    state: str
    n_ctx: int
    request: int | None
    prompt_tokens: int
    cached_tokens: int
    predicted_tokens: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the start. `steps` counts decode calls; `decoded_tokens / steps` is the mean batch."""

    steps: int
    decoded_tokens: int
    prompt_tokens: int
    cached_tokens: int
    predicted_tokens: int
    requests_done: int
    requests_cancelled: int
    requests_failed: int
    slots_busy: int
    queued: int
    generating_max: int
    """The most slots that ever took one token each in the same step."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the GGUF and the context say of the loaded model."""

    architecture: str
    description: str
    n_params: int
    size_bytes: int
    n_ctx: int
    n_ctx_slot: int
    n_ctx_train: int
    n_vocab: int
    n_embd: int
    n_slots: int
    chat_template: str | None
    bos_token: str
    eos_token: str
    add_bos: bool
    n_gpu_layers: int = 0
    """Layers that are on GPUs, the output layer among them."""
