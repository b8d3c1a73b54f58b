"""How to generate: the fields that all generating routes share, over the defaults of the model's options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from llamad.api.adapters import parse_adapters
from llamad.api.extras import Extras, parse_extras
from llamad.api.fields import Fields
from llamad.api.likelihoods import parse_wanted
from llamad.api.rules import parse_rules
from llamad.api.sampling import Vocabulary, parse_sampling
from llamad.api.speculative import parse_speculative
from llamad.api.unsupported import refuse_unsupported
from llamad.engine.vocabulary import (
    SEED_RANDOM,
    Adapters,
    GenerateRequest,
    Rules,
    SamplingParams,
    Speculative,
    ThoughtLimit,
    Wanted,
)
from llamad.errors import RequestError

N_MAX = 128
"""OpenAI's: answers to one prompt."""
STOPS_MAX = 64
STOP_CHARS_MAX = 1024
TOKENS_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Generation:
    """All of a GenerateRequest but its number and its tokens. `max_tokens` -1: until the context is full.

    `n`: how many answers to each prompt. `speculation`: who drafts, as the model's options have it. `shown`: control tokens
    that appear in the answer, and as what. `thought`: how long the model may think.
    """

    max_tokens: int = -1
    stop: tuple[str, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    cache_prompt: bool = True
    id_slot: int = -1
    wanted: Wanted | None = None
    rules: Rules | None = None
    time_limit_ms: int = -1
    extras: Extras = field(default_factory=Extras)
    adapters: Adapters | None = None
    speculative: Speculative | None = None
    speculation: tuple[str, ...] = ()
    n: int = 1
    n_keep: int = 0
    n_discard: int = 0
    n_cache_reuse: int | None = None
    stream: bool = False
    shown: tuple[tuple[int, bytes], ...] = ()
    n_indent: int = 0
    thought: ThoughtLimit | None = None

    def request(
        self, number: int, tokens: tuple[int, ...], family: int = 0, place: int = 0
    ) -> GenerateRequest:
        """One sequence of this kind: the one in this place, from 0, of a family of `n`, named by its first's number."""
        return GenerateRequest(
            number,
            tokens,
            self.max_tokens,
            self.stop,
            self.sampling
            if place == 0
            else replace(self.sampling, seed=_later_seed(self.sampling.seed, place)),
            self.cache_prompt,
            self.id_slot if place == 0 else -1,
            self.wanted,
            self.rules,
            self.time_limit_ms,
            self.extras.timings_per_token,
            self.extras.progress,
            self.adapters,
            self.speculative,
            family,
            self.n_keep,
            self.n_discard,
            self.stream,
            self.shown,
            self.n_indent,
            thought=self.thought,
            n_cache_reuse=self.n_cache_reuse,
        )

    @classmethod
    def of(cls, request: GenerateRequest) -> Generation:
        """What `request` was made of."""
        return cls(
            request.max_tokens,
            request.stop,
            request.sampling,
            request.cache_prompt,
            request.id_slot,
            request.wanted,
            request.rules,
            request.time_limit_ms,
            Extras(timings_per_token=request.tell_timings, progress=request.tell_progress),
            adapters=request.adapters,
            speculative=request.speculative,
            n_keep=request.n_keep,
            n_discard=request.n_discard,
            n_cache_reuse=request.n_cache_reuse,
            stream=request.stream,
            shown=request.shown,
            n_indent=request.n_indent,
            thought=request.thought,
        )

    def ended_by(self, marks: tuple[str, ...]) -> Generation:
        """The same, ended by texts that stand for an end of generation, too: `ignore_eos` passes over them."""
        if self.sampling.ignore_eos:
            return self
        return replace(self, stop=self.stop + tuple(mark for mark in marks if mark not in self.stop))


def parse_generation(fields: Fields, defaults: Generation, vocabulary: Vocabulary) -> Generation:
    """What the request asks for, over `defaults`. Raises RequestError for a wrong field and for an unsupported one."""
    refuse_unsupported(fields)
    return Generation(
        max_tokens=_max_tokens(fields, defaults.max_tokens),
        stop=_stop(fields, defaults.stop),
        sampling=parse_sampling(fields, defaults.sampling, vocabulary),
        cache_prompt=fields.flag("cache_prompt", defaults.cache_prompt),
        id_slot=fields.integer("id_slot", defaults.id_slot, -1, TOKENS_MAX),
        wanted=parse_wanted(fields),
        rules=parse_rules(fields, defaults.rules),
        time_limit_ms=fields.integer("t_max_predict_ms", defaults.time_limit_ms, -1, (1 << 63) - 1),
        extras=parse_extras(fields),
        adapters=_adapters(fields, defaults.adapters),
        speculative=parse_speculative(fields) or defaults.speculative,
        speculation=defaults.speculation,
        n=fields.integer("n" if fields.raw("n_cmpl") is None else "n_cmpl", defaults.n, 1, N_MAX),
        n_keep=fields.integer("n_keep", defaults.n_keep, -1, TOKENS_MAX),
        n_discard=fields.integer("n_discard", defaults.n_discard, 0, TOKENS_MAX),
        n_cache_reuse=_cache_reuse(fields),
        stream=fields.flag("stream", False),
        n_indent=fields.integer("n_indent", defaults.n_indent, 0, TOKENS_MAX),
    )


def _later_seed(seed: int, place: int) -> int:
    """llama-server's: each answer draws from the next seed. What is drawn anyway stays so, and is never come upon."""
    return seed if seed == SEED_RANDOM else (seed + place) % SEED_RANDOM


def _cache_reuse(fields: Fields) -> int | None:
    return None if fields.raw("n_cache_reuse") is None else fields.integer("n_cache_reuse", 0, 0, TOKENS_MAX)


def _max_tokens(fields: Fields, default: int) -> int:
    """llama.cpp's own name wins, as in llama-server, then OpenAI's new one."""
    for name in ("n_predict", "max_completion_tokens", "max_tokens"):
        if fields.raw(name) is not None:
            return fields.integer(name, default, -1, TOKENS_MAX)
    return default


def _adapters(fields: Fields, default: Adapters | None) -> Adapters | None:
    """An empty list says nothing, as in llama-server."""
    value = fields.array("lora")
    return parse_adapters(value, fields.path("lora")) if value else default


def _stop(fields: Fields, default: tuple[str, ...]) -> tuple[str, ...]:
    value = fields.raw("stop")
    if value is None:
        return default
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise fields.wrong("stop", "a string or an array of strings", value)
    if len(stops) > STOPS_MAX or any(len(stop) > STOP_CHARS_MAX for stop in stops):
        raise RequestError(
            f"cannot take more than {STOPS_MAX} stop strings or one of over {STOP_CHARS_MAX} characters",
            kind="bad-field",
            details={"param": "stop"},
        )
    return tuple(stop for stop in stops if stop)
