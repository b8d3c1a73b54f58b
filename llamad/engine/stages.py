"""From sampling parameters to the stages that a request's logits go through. Pure.

llama.cpp's way: logit bias, then the samplers in the order that the request names, then one draw. Mirostat replaces the
samplers: temperature, then its own draw. A stage whose parameters make it do nothing is left out here, because what
remains decides how much of the vocabulary has to be looked at:

* Penalties and DRY change tokens one by one, and only those seen lately. As long as nothing stands before them they are
  *edits*: they are applied to these entries of the row and to no others.
* The rest is the *chain*. If it is certain to end at the largest logit, there is none (greedy): with a temperature of 0
  only typical and XTC may drop the likeliest token, and an edit in the middle may change which one that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llamad.engine.vocabulary import SamplingParams

EDITS = ("penalties", "dry")
_KEEP_THE_LIKELIEST = ("top_n_sigma", "top_k", "top_p", "min_p", "temperature")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, by llama.cpp's name, with its arguments in llama.cpp's order.

    `penalties` (last_n, repeat, frequency, presence), `dry` (multiplier, base, allowed_length, last_n, breakers),
    `top_n_sigma` (n), `top_k` (k), `typ_p`, `top_p`, `min_p` (p, min_keep), `xtc` (probability, threshold, min_keep,
    seed), `temperature` (t, range, exponent), `infill` (). A chain ends with one that draws: `draw` (seed), `mirostat`
    (tau, eta, seed), `mirostat_v2` (tau, eta, seed) or `adaptive_p` (target, decay, seed).
    """

    name: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """`edits`, then `chain`; an empty chain is the largest logit."""

    edits: tuple[Stage, ...]
    chain: tuple[Stage, ...]


def recipe(params: SamplingParams, seed: int, n_ctx: int) -> Recipe:
    """What these parameters ask for. `n_ctx` bounds how far back a stage can look. ValueError: unknown sampler."""
    if params.mirostat:
        return _mirostat(params, seed)
    named = [_stage(name, params, seed, n_ctx) for name in params.samplers if name != "adaptive_p"]
    stages = [stage for stage in named if stage is not None]
    n_edits = next((i for i, stage in enumerate(stages) if stage.name not in EDITS), len(stages))
    edits, rest = tuple(stages[:n_edits]), tuple(stages[n_edits:])
    if "adaptive_p" in params.samplers:
        draw = Stage("adaptive_p", (params.adaptive_target, params.adaptive_decay, seed))
    elif _is_greedy(rest):
        return Recipe(edits, ())
    else:
        draw = Stage("draw", (seed,))
    return Recipe(edits, (*rest, draw))


def look_back(stages: tuple[Stage, ...]) -> int:
    """How many of the last tokens these stages look at."""
    places = {"penalties": 0, "dry": 3}
    return max((stage.args[places[stage.name]] for stage in stages if stage.name in places), default=0)


def _mirostat(params: SamplingParams, seed: int) -> Recipe:
    if params.temperature <= 0:
        return Recipe((), ())
    name = "mirostat" if params.mirostat == 1 else "mirostat_v2"
    own = Stage(name, (params.mirostat_tau, params.mirostat_eta, seed))
    # The plain temperature: mirostat does without the dynamic one.
    return Recipe((), (Stage("temperature", (params.temperature, 0.0, 1.0)), own))


def _is_greedy(stages: tuple[Stage, ...]) -> bool:
    cold = any(stage.name == "temperature" and stage.args[0] <= 0 and stage.args[1] <= 0 for stage in stages)
    return cold and all(stage.name in _KEEP_THE_LIKELIEST for stage in stages)


def _stage(name: str, p: SamplingParams, seed: int, n_ctx: int) -> Stage | None:
    """The stage, or None if it does nothing."""
    match name:
        case "penalties":
            values = (p.repeat_penalty, p.frequency_penalty, p.presence_penalty)
            last_n = _last_n(p.repeat_last_n, n_ctx)
            return Stage(name, (last_n, *values)) if last_n and values != (1.0, 0.0, 0.0) else None
        case "dry":
            last_n = _last_n(p.dry_penalty_last_n, n_ctx)
            args = (p.dry_multiplier, p.dry_base, p.dry_allowed_length, last_n, p.dry_sequence_breakers)
            return Stage(name, args) if p.dry_multiplier and p.dry_base >= 1.0 and last_n else None
        case "xtc":
            works = p.xtc_probability > 0.0 and p.xtc_threshold <= 0.5
            return Stage(name, (p.xtc_probability, p.xtc_threshold, p.min_keep, seed)) if works else None
        case "temperature":
            return Stage(name, (p.temperature, p.dynatemp_range, p.dynatemp_exponent))
        case "infill":
            return Stage(name)
        case _:
            return _truncation(name, p)


def _truncation(name: str, p: SamplingParams) -> Stage | None:
    match name:
        case "top_n_sigma":
            return Stage(name, (p.top_n_sigma,)) if p.top_n_sigma > 0.0 else None
        case "top_k":
            return Stage(name, (p.top_k,)) if p.top_k > 0 else None
        case "typ_p":
            return Stage(name, (p.typical_p, p.min_keep)) if p.typical_p < 1.0 else None
        case "top_p":
            return Stage(name, (p.top_p, p.min_keep)) if p.top_p < 1.0 else None
        case "min_p":
            return Stage(name, (p.min_p, p.min_keep)) if p.min_p > 0.0 else None
    raise ValueError(f"cannot sample with {name!r}: there is no such sampler")


def _last_n(value: int, n_ctx: int) -> int:
    """llama.cpp makes room for as many tokens as it is told, so it must not be told more than can be."""
    return n_ctx if value < 0 else min(value, n_ctx)
