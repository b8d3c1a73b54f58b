"""llama-server's sampling fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from llamad.api.fields import Fields, wrong_field
from llamad.engine.vocabulary import SEED_RANDOM, SamplingParams
from llamad.errors import RequestError

LOGIT_BIAS_MAX = 4096
SAMPLERS_MAX = 32
BREAKERS_MAX = 64
BREAKER_BYTES_MAX = 40
"""llama.cpp would cut what is longer."""
COUNT_MAX = (1 << 31) - 1
FORBIDDEN = float("-inf")
# Large enough for anybody, and still a number when something has been added to it.
_MUCH = 1e6

_LETTERS = {
    "d": "dry",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "s": "top_n_sigma",
    "m": "min_p",
    "t": "temperature",
    "x": "xtc",
    "i": "infill",
    "e": "penalties",
    "a": "adaptive_p",
}
_OTHER_NAMES = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p", "typical_p": "typ_p"}


class Vocabulary(Protocol):
    """What parsing needs to know of the model: how many tokens there are, how many fit, and the tokens of a text."""

    @property
    def n_vocab(self) -> int: ...

    @property
    def n_ctx(self) -> int:
        """Tokens that one request may have, its answer included."""
        ...

    @property
    def tokenize(self) -> Callable[[str, bool, bool], tuple[int, ...]]:
        """`(text, add_special, parse_special)` to token ids."""
        ...


def parse_sampling(fields: Fields, base: SamplingParams, vocabulary: Vocabulary) -> SamplingParams:
    """The request's parameters over those of the model's options. Raises RequestError that names the field."""
    return SamplingParams(
        seed=_seed(fields, base.seed),
        temperature=fields.number("temperature", base.temperature, -_MUCH, _MUCH),
        dynatemp_range=fields.number("dynatemp_range", base.dynatemp_range, -_MUCH, _MUCH),
        dynatemp_exponent=fields.number("dynatemp_exponent", base.dynatemp_exponent, -_MUCH, _MUCH),
        top_k=fields.integer("top_k", base.top_k, -1, COUNT_MAX),
        top_p=fields.number("top_p", base.top_p, 0, 1),
        min_p=fields.number("min_p", base.min_p, 0, 1),
        top_n_sigma=fields.number("top_n_sigma", base.top_n_sigma, -_MUCH, _MUCH),
        xtc_probability=fields.number("xtc_probability", base.xtc_probability, 0, 1),
        xtc_threshold=fields.number("xtc_threshold", base.xtc_threshold, 0, 1),
        typical_p=fields.number("typical_p", base.typical_p, 0, 1),
        repeat_last_n=fields.integer("repeat_last_n", base.repeat_last_n, -1, COUNT_MAX),
        repeat_penalty=fields.number("repeat_penalty", base.repeat_penalty, 1e-6, _MUCH),
        presence_penalty=fields.number("presence_penalty", base.presence_penalty, -_MUCH, _MUCH),
        frequency_penalty=fields.number("frequency_penalty", base.frequency_penalty, -_MUCH, _MUCH),
        dry_multiplier=fields.number("dry_multiplier", base.dry_multiplier, -_MUCH, _MUCH),
        dry_base=_dry_base(fields, base.dry_base),
        dry_allowed_length=fields.integer("dry_allowed_length", base.dry_allowed_length, 0, COUNT_MAX),
        dry_penalty_last_n=fields.integer("dry_penalty_last_n", base.dry_penalty_last_n, -1, COUNT_MAX),
        dry_sequence_breakers=_breakers(fields, base.dry_sequence_breakers),
        mirostat=fields.integer("mirostat", base.mirostat, 0, 2),
        mirostat_tau=fields.number("mirostat_tau", base.mirostat_tau, 0, _MUCH),
        mirostat_eta=fields.number("mirostat_eta", base.mirostat_eta, 0, _MUCH),
        adaptive_target=fields.number("adaptive_target", base.adaptive_target, -_MUCH, 1),
        adaptive_decay=fields.number("adaptive_decay", base.adaptive_decay, 0, 0.99),
        min_keep=fields.integer("min_keep", base.min_keep, 0, COUNT_MAX),
        samplers=_samplers(fields, base.samplers),
        logit_bias=_logit_bias(fields, base.logit_bias, vocabulary),
        ignore_eos=fields.flag("ignore_eos", base.ignore_eos),
    )


def sampler_names(value: Any) -> tuple[str, ...]:
    """llama.cpp's names, from a list of names in any of its spellings or a text of its letters.

    ValueError with the first one that there is none of.
    """
    if isinstance(value, str):
        return tuple(_LETTERS.get(letter) or _no_sampler(letter) for letter in value)
    return tuple(_sampler_name(name) for name in value)


def is_breaker(value: Any) -> bool:
    """Can DRY take this as a sequence breaker?"""
    return isinstance(value, str) and 0 < len(value.encode()) <= BREAKER_BYTES_MAX and "\0" not in value


def _sampler_name(name: str) -> str:
    known = set(_LETTERS.values())
    plain = name.strip().lower().replace("-", "_")
    for candidate in (plain, _OTHER_NAMES.get(plain, "")):
        if candidate in known:
            return candidate
    return next((word for word in sorted(known) if word.replace("_", "") == plain), None) or _no_sampler(name)


def _no_sampler(name: str) -> str:
    raise ValueError(f"there is no sampler {name[:40]!r}, only {', '.join(sorted(_LETTERS.values()))}")


def _seed(fields: Fields, default: int) -> int:
    """OpenAI's seeds have 64 bits and llama.cpp's 32: the low ones are taken. -1 draws one."""
    return fields.integer("seed", default, -(1 << 63), (1 << 64) - 1) & SEED_RANDOM


def _dry_base(fields: Fields, default: float) -> float:
    """What is below 1 means the default, as llama-server has it."""
    value = fields.number("dry_base", default, -_MUCH, _MUCH)
    return value if value >= 1.0 else default


def _breakers(fields: Fields, default: tuple[str, ...]) -> tuple[str, ...]:
    value = fields.array("dry_sequence_breakers")
    if value is None:
        return default
    if not 0 < len(value) <= BREAKERS_MAX or not all(is_breaker(text) for text in value):
        raise fields.wrong(
            "dry_sequence_breakers",
            f"1 to {BREAKERS_MAX} strings of at most {BREAKER_BYTES_MAX} bytes",
            value,
        )
    return tuple(value)


def _samplers(fields: Fields, default: tuple[str, ...]) -> tuple[str, ...]:
    value = fields.raw("samplers")
    if value is None:
        return default
    if isinstance(value, list) and not all(isinstance(name, str) for name in value):
        raise fields.wrong("samplers", "names of samplers", value)
    if not isinstance(value, list | str) or len(value) > SAMPLERS_MAX:
        raise fields.wrong("samplers", f"at most {SAMPLERS_MAX} names or letters of samplers", value)
    try:
        return sampler_names(value)
    except ValueError as error:
        raise RequestError(
            f"cannot read {fields.path('samplers')!r}: {error}",
            kind="bad-field",
            details={"param": fields.path("samplers")},
        ) from None


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
    return min(max(value, -_MUCH), _MUCH)


def _biased_tokens(where: str, value: Any, vocabulary: Vocabulary) -> tuple[int, ...]:
    """A token id, its decimal digits (JSON's keys are strings), or a text whose tokens are meant."""
    if isinstance(value, str):
        if not value.isdecimal():
            return vocabulary.tokenize(value, False, False)
        value = int(value[:20])
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocabulary.n_vocab:
        raise wrong_field(where, f"a token id from 0 to {vocabulary.n_vocab - 1} or a text", value)
    return (value,)
