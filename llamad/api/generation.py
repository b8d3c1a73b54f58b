"""How to generate: the fields that all generating routes share, over the defaults of the model's options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from llamad.api.fields import Fields, wrong_field
from llamad.api.unsupported import refuse_unsupported
from llamad.engine.vocabulary import SEED_RANDOM, GenerateRequest, SamplingParams
from llamad.errors import RequestError

STOPS_MAX = 64
STOP_CHARS_MAX = 1024
LOGIT_BIAS_MAX = 4096
TOKENS_MAX = (1 << 31) - 1
FORBIDDEN = float("-inf")


class Vocabulary(Protocol):
    """What parsing needs to know of the model: how many tokens there are, and the tokens of a text."""

    @property
    def n_vocab(self) -> int: ...

    @property
    def tokenize(self) -> Callable[[str, bool, bool], tuple[int, ...]]:
        """`(text, add_special, parse_special)` to token ids."""
        ...


@dataclass(frozen=True, slots=True)
class Generation:
    """All of a GenerateRequest but its number and its tokens. `max_tokens` -1: until the context is full."""

    max_tokens: int = -1
    stop: tuple[str, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    cache_prompt: bool = True
    id_slot: int = -1

    def request(self, number: int, tokens: tuple[int, ...]) -> GenerateRequest:
        """One sequence of this kind."""
        return GenerateRequest(
            number, tokens, self.max_tokens, self.stop, self.sampling, self.cache_prompt, self.id_slot
        )

    def with_stops(self, stops: tuple[str, ...]) -> Generation:
        """The same, ended by `stops` too."""
        return replace(self, stop=self.stop + tuple(stop for stop in stops if stop not in self.stop))


def parse_generation(fields: Fields, defaults: Generation, vocabulary: Vocabulary) -> Generation:
    """What the request asks for, over `defaults`. Raises RequestError for a wrong field and for an unsupported one."""
    refuse_unsupported(fields)
    return Generation(
        max_tokens=_max_tokens(fields, defaults.max_tokens),
        stop=_stop(fields, defaults.stop),
        sampling=_sampling(fields, defaults.sampling, vocabulary),
        cache_prompt=fields.flag("cache_prompt", defaults.cache_prompt),
        id_slot=fields.integer("id_slot", defaults.id_slot, -1, TOKENS_MAX),
    )


def _max_tokens(fields: Fields, default: int) -> int:
    """OpenAI's new name wins over its old one, and both over llama.cpp's."""
    for name in ("max_completion_tokens", "max_tokens", "n_predict"):
        if fields.raw(name) is not None:
            return fields.integer(name, default, -1, TOKENS_MAX)
    return default


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


def _sampling(fields: Fields, base: SamplingParams, vocabulary: Vocabulary) -> SamplingParams:
    return SamplingParams(
        seed=_seed(fields, base.seed),
        temperature=fields.number("temperature", base.temperature, -1e6, 1e6),
        top_k=fields.integer("top_k", base.top_k, -1, TOKENS_MAX),
        top_p=fields.number("top_p", base.top_p, 0, 1),
        min_p=fields.number("min_p", base.min_p, 0, 1),
        typical_p=fields.number("typical_p", base.typical_p, 0, 1),
        repeat_last_n=fields.integer("repeat_last_n", base.repeat_last_n, -1, TOKENS_MAX),
        repeat_penalty=fields.number("repeat_penalty", base.repeat_penalty, 1e-6, 1e6),
        presence_penalty=fields.number("presence_penalty", base.presence_penalty, -1e6, 1e6),
        frequency_penalty=fields.number("frequency_penalty", base.frequency_penalty, -1e6, 1e6),
        logit_bias=_logit_bias(fields, base.logit_bias, vocabulary),
        ignore_eos=fields.flag("ignore_eos", base.ignore_eos),
    )


def _seed(fields: Fields, default: int) -> int:
    """OpenAI's seeds have 64 bits and llama.cpp's 32: the low ones are taken. -1 draws one."""
    return fields.integer("seed", default, -(1 << 63), (1 << 64) - 1) & SEED_RANDOM


def _logit_bias(
    fields: Fields, default: tuple[tuple[int, float], ...], vocabulary: Vocabulary
) -> tuple[tuple[int, float], ...]:
    """OpenAI's `{"15043": 1.0}` or llama.cpp's `[[15043, 1.0], [" Hello", false]]`; false forbids the token."""
    value = fields.raw("logit_bias")
    if value is None:
        return default
    pairs = [[key, bias] for key, bias in value.items()] if isinstance(value, dict) else value
    if not isinstance(pairs, list) or len(pairs) > LOGIT_BIAS_MAX:
        raise fields.wrong("logit_bias", f"an object or an array of at most {LOGIT_BIAS_MAX} pairs", value)
    biases: dict[int, float] = {}
    for index, pair in enumerate(pairs):
        where = f"{fields.path('logit_bias')}[{index}]"
        if not isinstance(pair, list) or len(pair) != 2:
            raise wrong_field(where, "a pair of token and bias", pair)
        bias = _bias(where, pair[1])
        biases.update((token, bias) for token in _biased_tokens(where, pair[0], vocabulary))
    return tuple(biases.items())


def _bias(where: str, value: Any) -> float:
    if value is False:
        return FORBIDDEN
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_field(where, "a number or false as bias", value)
    return min(max(value, -1e6), 1e6)


def _biased_tokens(where: str, value: Any, vocabulary: Vocabulary) -> tuple[int, ...]:
    """A token id, its decimal digits (JSON's keys are strings), or a text whose tokens are meant."""
    if isinstance(value, str):
        if not value.isdecimal():
            return vocabulary.tokenize(value, False, False)
        value = int(value[:20])
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocabulary.n_vocab:
        raise wrong_field(where, f"a token id from 0 to {vocabulary.n_vocab - 1} or a text", value)
    return (value,)
