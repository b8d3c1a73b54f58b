"""llama-server's sampling fields: names, forms, defaults, and the JSON that says what was used."""

from __future__ import annotations

import json
from dataclasses import fields as dataclass_fields
from typing import Any

import msgspec
import pytest

from llamad.api.generation import Generation
from llamad.api.openai import parse_chat
from llamad.api.sampling import sampler_names
from llamad.api.settings import generation_settings
from llamad.engine.vocabulary import Rules, SamplingParams, Wanted
from tests.api.test_parsing import USER, VOCABULARY, chat, refusal

# As llama-server's /props shows them.
LLAMA_SERVER_DEFAULTS = {
    "temperature": 0.8,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 64,
    "dry_sequence_breakers": ["\n", ":", '"', "*"],
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "min_keep": 0,
    "n_probs": 0,
    "post_sampling_probs": False,
    "ignore_eos": False,
    "logit_bias": [],
    "grammar": "",
    "samplers": [
        *("penalties", "dry", "top_n_sigma", "top_k", "typ_p"),
        *("top_p", "min_p", "xtc", "temperature"),
    ],
}
OTHERS = {
    "temperature": 0.5,
    "dynatemp_range": 0.3,
    "dynatemp_exponent": 1.5,
    "top_k": 7,
    "top_p": 0.5,
    "min_p": 0.25,
    "top_n_sigma": 1.5,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.25,
    "typical_p": 0.75,
    "repeat_last_n": -1,
    "repeat_penalty": 1.25,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "dry_multiplier": 0.75,
    "dry_base": 2.0,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["!", "żółć"],
    "mirostat": 2,
    "mirostat_tau": 4.0,
    "mirostat_eta": 0.25,
    "adaptive_target": 0.5,
    "adaptive_decay": 0.5,
    "min_keep": 2,
    "samplers": ["dry", "temperature"],
    "ignore_eos": True,
    "seed": 5,
}


def settings(generation: Generation) -> dict[str, Any]:
    return json.loads(msgspec.json.encode(generation_settings(generation)))


def sampling(**fields: Any) -> SamplingParams:
    return chat(**fields).generation.sampling


def test_defaults_are_llama_servers() -> None:
    shown = settings(chat().generation)
    assert {name: shown[name] for name in LLAMA_SERVER_DEFAULTS} == LLAMA_SERVER_DEFAULTS


def test_every_field_arrives_and_is_shown() -> None:
    parsed = chat(**OTHERS).generation
    shown = settings(parsed)
    assert {name: shown[name] for name in OTHERS} == OTHERS
    read = {field.name for field in dataclass_fields(SamplingParams)} - {"logit_bias"}
    assert read == OTHERS.keys()


def test_what_is_absent_comes_from_the_models_options() -> None:
    own = Generation(sampling=chat(**OTHERS).generation.sampling)
    parsed = parse_chat({"messages": [USER], "top_k": 9}, own, VOCABULARY).generation.sampling
    assert (parsed.top_k, parsed.mirostat, parsed.samplers) == (9, 2, ("dry", "temperature"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("kt", ("top_k", "temperature")),
        ("edskypmxt", SamplingParams().samplers),
        ("ia", ("infill", "adaptive_p")),
        ([], ()),
        ("", ()),
        (["top-k", "TopP", "minp", "nucleus"], ("top_k", "top_p", "min_p", "top_p")),
        (
            ["temp", "typ", "typical-p", "top_n_sigma", "topnsigma"],
            ("temperature", "typ_p", "typ_p", "top_n_sigma", "top_n_sigma"),
        ),
    ],
    ids=str,
)
def test_samplers_have_many_spellings(value: Any, expected: tuple[str, ...]) -> None:
    assert sampling(samplers=value).samplers == expected


def test_an_unknown_sampler_is_named() -> None:
    for value, word in ((["top_k", "tfs_z"], "'tfs_z'"), ("kz", "'z'")):
        message = refusal(chat, samplers=value).message
        assert word in message
        assert "adaptive_p, dry, infill" in message
    with pytest.raises(ValueError, match="'q'"):
        sampler_names("q")


def test_a_dry_base_below_one_means_the_default() -> None:
    assert sampling(dry_base=0.5).dry_base == 1.75


@pytest.mark.parametrize(
    "fields",
    [
        {"dry_sequence_breakers": []},
        {"dry_sequence_breakers": "x"},
        {"dry_sequence_breakers": [1]},
        {"dry_sequence_breakers": [""]},
        {"dry_sequence_breakers": ["x" * 41]},
        {"dry_sequence_breakers": ["x"] * 65},
        {"samplers": 5},
        {"samplers": [5]},
        {"samplers": "k" * 33},
        {"mirostat": 3},
        {"mirostat": 1.5},
        {"xtc_probability": 1.5},
        {"xtc_threshold": -0.1},
        {"min_keep": -1},
        {"dry_allowed_length": -1},
        {"dry_penalty_last_n": -2},
        {"adaptive_decay": 1.0},
        {"mirostat_tau": -1},
        {"dynatemp_range": "wide"},
        {"top_n_sigma": 1e300},
    ],
    ids=str,
)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any]) -> None:
    error = refusal(chat, **fields)
    assert error.kind == "bad-field"
    assert error.body()["error"]["param"] == next(iter(fields))


def test_settings_show_rules_and_likelihoods() -> None:
    shown = settings(Generation(wanted=Wanted(3, True), rules=Rules("json_schema", '{"type": "object"}')))
    assert (shown["n_probs"], shown["post_sampling_probs"], shown["grammar"]) == (3, True, "")
    assert shown["json_schema"] == {"type": "object"}
    assert settings(Generation(rules=Rules("gbnf", "root ::= x")))["grammar"] == "root ::= x"
