"""What is said to an engine and what it says back. The api package turns JSON into these and these into JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llamad.engine.drafting import SpeculationSettings
from llamad.engine.drafting import Speculative as Speculative
from llamad.engine.forms import FimTokens, PairForm
from llamad.engine.orders import SlotDone, SlotOrder
from llamad.errors import LlamadError

SEED_RANDOM = 0xFFFFFFFF
"""llama.cpp's LLAMA_DEFAULT_SEED: draw one."""


SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
"""llama-server's samplers in its default order. Beside these there are `adaptive_p` and `infill`."""
SHIFTED_CONTEXTS_MAX = 64
"""How many contexts long a prompt may be where the oldest part of it is dropped."""
DRY_BREAKERS = ("\n", ":", '"', "*")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """llama-server's sampling parameters, with its defaults (tools/server/README, `/completion`).

    `samplers` are applied in this order; one that is not named, or whose parameters make it do nothing, is left out.
    Off is: `temperature` <= 0 (greedy), `top_k` <= 0, `top_p`, `typical_p` and `repeat_penalty` 1.0,
    `xtc_threshold` > 0.5, `adaptive_target` < 0, and 0 for everything else. `repeat_last_n` and `dry_penalty_last_n`
    count tokens, -1 is the whole context. `min_keep`: stages that drop candidates leave at least so many. `mirostat` 1
    or 2 takes the place of all samplers but the temperature. `logit_bias` maps token ids to an additive bias (`-inf`
    forbids the token).
    """

    seed: int = SEED_RANDOM
    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    typical_p: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = DRY_BREAKERS
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    min_keep: int = 0
    samplers: tuple[str, ...] = SAMPLERS
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to tell of each token's likelihood: its own, and the `n` likeliest there.

    Logarithms of the model's own probabilities, or with `after_sampling` the probabilities that the draw was made from.
    """

    n: int
    after_sampling: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """What an answer must conform to. `kind`: `json_schema` (the schema's text), `gbnf` (a grammar), or `lark`: a grammar
    in llguidance's notation that refers to its `parts`, which are rules of the other kinds, by `@name`."""

    kind: str
    text: str
    parts: tuple[tuple[str, Rules], ...] = ()


Adapters = tuple[tuple[int, float], ...]
"""LoRA adapters in force: (id, scale) by ascending id, none with a scale of 0. Ids count a model's adapters from 0."""


class Word:
    """Said by one thread and heard by another, once and for all."""

    __slots__ = ("said",)

    def __init__(self) -> None:
        self.said = False


@dataclass(frozen=True, slots=True)
class ThoughtLimit:
    """A thought may have `budget` tokens; after them, or when `enough` is said, it is ended with the text `ending`.

    It begins with `opens` at the head of the answer ("": the prompt has begun it) and ends with `closes`, or with one of
    the `others`.
    """

    budget: int
    opens: str
    closes: str
    ending: str
    enough: Word | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One sequence to generate.

    `tokens`: the prompt, token ids, not empty. `max_tokens` < 0: until the context is full. `stop`: texts that end
    the answer and are not part of it. `cache_prompt`: a common prefix with what a slot holds may be reused.
    `id_slot` >= 0 asks for one slot. `time_limit_ms` > 0: the answer ends with the first line that is complete so long
    after its first token. `tell_timings`: with each Text; `tell_progress`: a Progress for each part of the prompt.
    `adapters`: None for the model's default, for which the engine takes none of them;
    `child.resident` knows better. `family` is the id of the first of several requests with the same prompt, the same for
    all of them: the prompt is evaluated once. 0 for a request alone. Where the model `shifts`, a request that is longer than
    the context keeps its first `n_keep` tokens (< 0: its prompt), and drops `n_discard` behind them at a time (0: half of
    the rest). Without `stream` there is one Text, at the end: a step that nobody hears of wakes nobody. `shown`: control
    tokens that appear in the answer, and as what. `n_indent`: the answer ends before a line, but the first, that is
    indented by less. `thought`: how long the model may think. `n_cache_reuse`: `Keeping.reuse_min` for this request, None
    for what the model's options say.
    """

    id: int
    tokens: tuple[int, ...]
    max_tokens: int = -1
    stop: tuple[str, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    cache_prompt: bool = True
    id_slot: int = -1
    wanted: Wanted | None = None
    rules: Rules | None = None
    time_limit_ms: int = 0
    tell_timings: bool = False
    tell_progress: bool = False
    adapters: Adapters | None = None
    speculative: Speculative | None = None
    family: int = 0
    n_keep: int = 0
    n_discard: int = 0
    stream: bool = True
    shown: tuple[tuple[int, bytes], ...] = ()
    n_indent: int = 0
    thought: ThoughtLimit | None = None
    n_cache_reuse: int | None = None

    @property
    def is_sibling(self) -> bool:
        """Is its prompt one that another request has brought?"""
        return self.family not in (0, self.id)


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Inputs to make vectors of: token ids, each input with at least one.

    `pooling`: how, where the model's is not wanted; it must not be `rank`. `normalize` as llama-server's
    `embd_normalize`, -1 for not at all (`engine.embedding.normalized`). `dimensions`: keep only so many, 0 for all.
    """

    id: int
    inputs: tuple[tuple[int, ...], ...]
    pooling: str = ""
    normalize: int = -1
    dimensions: int = 0
    adapters: Adapters | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """What a request cost. Times in ms. `cached_tokens` of the prompt were reused, `prompt_tokens` is its length.

    `shared`: the prompt is counted with the first request of the family. `drafted_tokens` were evaluated as drafts,
    `accepted_tokens` of them came true.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_ms: float = 0.0
    predicted_tokens: int = 0
    predicted_ms: float = 0.0
    shared: bool = False
    drafted_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Likely:
    """A token that could have come. `piece`: its bytes in an answer, of which there are none for a control token."""

    id: int
    piece: bytes
    value: float


@dataclass(frozen=True, slots=True)
class Likelihood:
    """A token that came, as its request `wanted` to be told: `value` and `top` are logarithms unless `after_sampling`."""

    id: int
    piece: bytes
    value: float
    top: tuple[Likely, ...] = ()
    after_sampling: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """New text of a request: whole characters, nothing that a stop string may still take back.

    `tokens` is how many tokens were generated since the last Text, and `ids` are these. `likelihoods`: of the tokens that
    this text is made of, if they are wanted; then the last Text may have none but these. `timings`: so far, if wanted.
    """

    id: int
    text: str
    tokens: int = 1
    likelihoods: tuple[Likelihood, ...] = ()
    ids: tuple[int, ...] = ()
    slot: int = -1
    timings: Timings | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a prompt is: `processed` of its `total` tokens are in the memory, `cached` of them were before. Time in ms
    since work on it began. `timings`: what it cost so far, if the request is told them all along."""

    id: int
    total: int
    cached: int
    processed: int
    spent_ms: float
    timings: Timings | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The last word on a request that ended well; remaining text came before in a Text.

    `reason`: `stop` (end of generation or a stop string, then `stop_word`), `length` (max_tokens or the context).
    `seed` is the one that was used, also where SEED_RANDOM was asked for: sending it again repeats the draws. `ids`: tokens
    that came after the last Text and made no more text of their own. `truncated`: the context was too small for all of
    it, so the answer ends, or the oldest part was dropped.
    """

    id: int
    reason: str
    stop_word: str
    timings: Timings
    slot: int
    seed: int = 0
    ids: tuple[int, ...] = ()
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Embedded:
    """The last word on an EmbedRequest that ended well.

    `vectors`, one an input: rows of `width` numbers (float32 in the machine's order), one row or one a token with the
    pooling `none`.
    """

    id: int
    vectors: tuple[bytes, ...]
    width: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The last word on a request that could not be served. A cancelled request is not answered at all."""

    id: int
    error: LlamadError


Output = Text | Progress | Finished | Embedded | SlotDone | Failed
Request = GenerateRequest | EmbedRequest | SlotOrder


@dataclass(frozen=True, slots=True)
class AdapterFile:
    """A LoRA adapter to load, and the scale that it has by default."""

    path: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """A loaded adapter: its scale by default, and what its GGUF says to users."""

    path: str
    scale: float = 1.0
    task_name: str = ""
    prompt_prefix: str = ""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How to load and run one model: llama.cpp's parameters under llama-server's long names.

    `n_ctx` 0: the model's own training context, capped by `n_ctx_default_max` where it is larger. `n_parallel`: slots.
    `n_gpu_layers` -1: all. `cache_type_k/v`: ggml type names (`f16`, `q8_0`, ...). `threads` <= 0: the cores this
    process may run on. `embedding`: a model that generates is to make vectors, too; one that does nothing else needs no
    telling. `pooling`: "" for the model's own. `devices`: names of GPUs, () for all, ("none",) for none of them. `split_mode`: `layer`, or `none`
    for the one device with the index `main_gpu`. `tensor_split`: shares of the devices, () by their memory
    (`engine.placement`). `context_shift`: requests may be longer than the context, where the model's memory can do that.
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
    context_shift: bool = False
    embedding: bool = False
    pooling: str = ""
    devices: tuple[str, ...] = ()
    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    adapters: tuple[AdapterFile, ...] = ()
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot as `/slots` shows it. `asked`: its request, or when idle the one before."""

    id: int
    state: str
    n_ctx: int
    request: int | None
    prompt_tokens: int
    cached_tokens: int
    predicted_tokens: int
    asked: GenerateRequest | None = None
    has_new_line: bool = False
    speculative: bool = False


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the start. `steps` counts decode calls; `decoded_tokens / steps` is the mean batch, and
    `busy_steps / steps` the mean number of busy slots. Times in ms, of requests that have ended.
    """

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
    drafts: int = 0
    """Speculation: how often tokens were drafted, how many, and how many of them came true."""
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    busy_steps: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0
    sequence_tokens_max: int = 0
    """The most tokens that a request ever had, prompt and answer."""


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
    tools_template: str | None = None
    """The chat template for requests with tools, where the model has one apart."""
    adapters: tuple[AdapterFacts, ...] = ()
    ftype: str = ""
    """How the weights are quantised, in llama.cpp's words."""
    vocab_type: int = 0
    """llama.cpp's number of the kind of tokeniser."""
    fim: FimTokens = FimTokens()  # noqa: RUF009 - frozen
    shifts: bool = False
    """A request may be longer than the context: its oldest part is dropped."""
    n_embd_out: int = 0
    """Numbers in a vector."""
    generates: bool = True
    pooling: str | None = None
    """How it makes vectors, "" where nobody has said how; None: it does not."""
    pair: PairForm = PairForm()  # noqa: RUF009 - frozen
    speculation: tuple[str, ...] = ()
    """Who drafts, by llama-server's names; () where nobody does."""

    @property
    def n_prompt_max(self) -> int:
        """Tokens that a prompt has less than."""
        return self.n_ctx_slot * (SHIFTED_CONTEXTS_MAX if self.shifts else 1)
