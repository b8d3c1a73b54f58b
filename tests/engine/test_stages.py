"""Parameters to stages: llama.cpp's order, nothing that does nothing, and greedy only where it is certain."""

from __future__ import annotations

import pytest

from llamad.engine.stages import Stage, look_back, recipe
from llamad.engine.vocabulary import DRY_BREAKERS, SAMPLERS, SamplingParams

OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


def names(**fields) -> tuple[list[str], list[str]]:
    plan = recipe(SamplingParams(**fields), 1, 4096)
    return [stage.name for stage in plan.edits], [stage.name for stage in plan.chain]


def test_defaults_are_llama_servers() -> None:
    assert names() == ([], ["top_k", "top_p", "min_p", "temperature", "draw"])
    assert names(**OFF) == ([], ["temperature", "draw"])


def test_everything_on_is_in_the_default_order() -> None:
    everything = {
        "repeat_penalty": 1.1,
        "dry_multiplier": 0.8,
        "top_n_sigma": 1.0,
        "typical_p": 0.9,
        "xtc_probability": 0.5,
    }
    edits, chain = names(**everything)
    assert (*edits, *chain) == (*SAMPLERS, "draw")
    assert edits == ["penalties", "dry"]


def test_the_order_of_a_request_is_kept_and_edits_stay_in_place_behind_other_stages() -> None:
    fields = {"repeat_penalty": 1.1, "dry_multiplier": 0.8}
    assert names(samplers=("min_p", "penalties", "top_k", "dry"), **fields) == (
        [],
        ["min_p", "penalties", "top_k", "dry", "draw"],
    )
    assert names(samplers=("dry", "penalties", "top_k"), **fields) == (
        ["dry", "penalties"],
        ["top_k", "draw"],
    )
    assert names(samplers=()) == ([], ["draw"])


def test_arguments_are_in_llama_cpps_order() -> None:
    plan = recipe(
        SamplingParams(
            dry_multiplier=0.8,
            presence_penalty=0.5,
            frequency_penalty=0.25,
            xtc_probability=0.5,
            min_keep=3,
            dynatemp_range=0.2,
            typical_p=0.5,
        ),
        7,
        4096,
    )
    assert plan.edits == (
        Stage("penalties", (64, 1.0, 0.25, 0.5)),
        Stage("dry", (0.8, 1.75, 2, 64, DRY_BREAKERS)),
    )
    assert plan.chain == (
        Stage("top_k", (40,)),
        Stage("typ_p", (0.5, 3)),
        Stage("top_p", (0.95, 3)),
        Stage("min_p", (0.05, 3)),
        Stage("xtc", (0.5, 0.1, 3, 7)),
        Stage("temperature", (0.8, 0.2, 1.0)),
        Stage("draw", (7,)),
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"dry_multiplier": 1.0, "dry_penalty_last_n": 0},
        {"dry_multiplier": 1.0, "dry_base": 0.5},
        {"xtc_probability": 0.5, "xtc_threshold": 0.6},
        {"repeat_penalty": 1.1, "repeat_last_n": 0},
        {"top_n_sigma": -1.0},
        {"top_n_sigma": 0.0},
    ],
    ids=str,
)
def test_what_does_nothing_is_left_out(fields: dict) -> None:
    assert names(**fields) == names()


@pytest.mark.parametrize(
    ("fields", "greedy"),
    [
        ({}, True),
        ({"temperature": -1.0}, True),
        ({"top_n_sigma": 1.0, "repeat_penalty": 1.1, "dry_multiplier": 1.0}, True),
        ({"mirostat": 1}, True),
        ({"mirostat": 2}, True),
        ({"typical_p": 0.5}, False),
        ({"xtc_probability": 0.5}, False),
        ({"dynatemp_range": 0.5}, False),
        ({"samplers": ("top_k",)}, False),
        ({"samplers": ("temperature", "adaptive_p")}, False),
        ({"repeat_penalty": 1.1, "samplers": ("top_k", "penalties", "temperature")}, False),
    ],
    ids=str,
)
def test_greedy_is_only_what_must_end_at_the_largest_logit(fields: dict, greedy: bool) -> None:
    assert (names(**{"temperature": 0.0, **fields})[1] == []) is greedy


def test_mirostat_replaces_all_samplers_but_the_temperature() -> None:
    fields = {"repeat_penalty": 1.5, "dynatemp_range": 0.5, "mirostat_tau": 4.0, "mirostat_eta": 0.2}
    for version, name in ((1, "mirostat"), (2, "mirostat_v2")):
        plan = recipe(SamplingParams(mirostat=version, **fields), 9, 4096)
        assert plan.edits == ()
        assert plan.chain == (Stage("temperature", (0.8, 0.0, 1.0)), Stage(name, (4.0, 0.2, 9)))


def test_adaptive_p_draws_in_the_end_wherever_it_is_named() -> None:
    params = SamplingParams(samplers=("adaptive_p", "top_k"), adaptive_target=0.5)
    assert recipe(params, 3, 4096).chain == (Stage("top_k", (40,)), Stage("adaptive_p", (0.5, 0.9, 3)))


@pytest.mark.parametrize(("last_n", "expected"), [(64, 64), (-1, 512), (10**9, 512)])
def test_no_stage_looks_further_back_than_the_context(last_n: int, expected: int) -> None:
    params = SamplingParams(
        repeat_penalty=1.1, repeat_last_n=last_n, dry_multiplier=1.0, dry_penalty_last_n=last_n
    )
    for edit in recipe(params, 1, 512).edits:
        assert look_back((edit,)) == expected
    assert look_back(recipe(params, 1, 512).chain) == 0


def test_an_unknown_sampler_is_an_error() -> None:
    with pytest.raises(ValueError, match="'top-q'"):
        recipe(SamplingParams(samplers=("top-q",)), 1, 1)
