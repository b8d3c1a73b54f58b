"""The option table: that it does not contradict itself, the settings, the engine, or the help text."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from llamad.child import measure
from llamad.child.instance_spec import InstanceSpec, parse_spec
from llamad.config import options
from llamad.config.helptext import help_text, spelled
from llamad.config.load import load
from llamad.config.option import Option, Scope
from llamad.config.settings import Settings
from llamad.engine.vocabulary import EngineSettings, SamplingParams
from tests.config.gguf_kit import write_model

SHOWN = [row for row in options.ROWS if row.help]
# What makes an engine but is no option: the path is the preset's, `extra` the tests', and llama-server has `min_keep` in
# requests only.
NO_OPTION = {"path", "extra", "min_keep"}
# These reach the supervisor or the fitting of a load, not the engine.
SUPERVISORS = {"sleep-idle-seconds": "sleep_idle_s", "unload-idle-seconds": "unload_idle_s"}
FITTING = {"fit": ("off", False), "fit-target": ("5", (5 << 20,)), "fit-ctx": ("7", 7)}


INSTANCE = [
    row
    for row in options.ROWS
    if row.scope is Scope.INSTANCE
    and (row.honoured is None or row.help)
    and row.name not in SUPERVISORS.keys() | FITTING.keys()
]


def by_name(row: Option) -> str:
    return row.name


@pytest.mark.parametrize("scopes", [options.DAEMON_SCOPES, options.PRESET_SCOPES])
def test_no_spelling_means_two_options(scopes: tuple[Scope, ...]) -> None:
    spellings = [word for row in options.ROWS if row.scope in scopes for word in row.spellings()]
    assert len(spellings) == len(set(spellings))


def test_every_field_of_settings_has_its_option() -> None:
    made = {"listeners", "config_file", "keys", "tls"}
    assert {entry.name for entry in fields(Settings)} - made == options.by_setting().keys()


@pytest.mark.parametrize(("field", "row"), options.by_setting().items())
def test_defaults_shown_are_defaults_used(field: str, row: Option) -> None:
    default = getattr(Settings("/run", "/state"), field)
    assert row.default is None or row.default == default


@pytest.mark.parametrize("row", SHOWN, ids=by_name)
def test_defaults_are_valid_values(row: Option) -> None:
    if row.default is not None:
        assert row.kind.parse(row.kind.render(row.default)) == row.default


@pytest.mark.parametrize("row", options.ROWS, ids=by_name)
def test_only_flags_have_forms_that_say_no(row: Option) -> None:
    assert not row.negatives or row.is_flag
    assert row.group


def test_what_is_honoured_is_a_value_of_its_kind() -> None:
    for row in options.ROWS:
        for value in row.honoured or ():
            assert row.kind.parse(row.kind.render(value)) == value, row.name


# Values unlike the defaults, where 1 or the other of yes and no will not do.
TEXTS = {
    "flash-attn": "on",
    "split-mode": "none",
    "cache-type-k": "q8_0",
    "cache-type-v": "q8_0",
    "logit-bias": "15043+1,7-inf",
    "chat-template": "{{ x }}",
    "chat-template-file": "/x",
    "lora": '/x,"/y,z"',
    "lora-scaled": "/x:0.5",
    "spec-type": "ngram-simple,ngram-mod",
    "spec-draft-type-k": "q8_0",
    "spec-draft-type-v": "q8_0",
    "spec-ngram-simple-min-hits": "2",
    "spec-ngram-map-k-min-hits": "2",
    "typical-p": "0.5",
    "repeat-penalty": "1.5",
    "samplers": "top_k;min-p;temp",
    "sampler-seq": "kmt",
    "dry-base": "2.5",
    "dynatemp-exp": "2.5",
    "adaptive-decay": "0.5",
    "json-schema": "{}",
    "pooling": "cls",
    "chat-template-kwargs": '{"x": 1}',
    "reasoning-format": "none",
    "reasoning": "off",
    "reasoning-effort": "low",
    "reasoning-budget": "0",
    "reasoning-budget-message": "x",
}


# What has an effect only beside something else.
BESIDE: dict[str, dict[str, object]] = {"lora-init-without-apply": {"lora": ["/x"]}}


def instance_with(row: Option | None, beside: str = "") -> InstanceSpec:
    """What an instance makes of one option, set to something unlike its default."""
    named: dict[str, object] = dict(BESIDE.get(beside, {}))
    if row is not None:
        text = ("false" if row.default else "true") if row.is_flag else TEXTS.get(row.name, "1")
        value = row.read(text, row.name)
        assert value != row.default
        named[row.name] = list(value) if isinstance(value, tuple) else value
    return parse_spec({"path": "/m.gguf", "token": "t", "options": named})


@pytest.mark.parametrize("row", INSTANCE, ids=by_name)
def test_an_option_that_is_honoured_has_an_effect(row: Option) -> None:
    assert instance_with(row, row.name) != instance_with(None, row.name)


@pytest.mark.parametrize("name", FITTING)
def test_what_is_chosen_by_fitting_can_be_said(name: str) -> None:
    row = next(row for row in options.ROWS if row.name == name)
    text, meant = FITTING[name]
    asked = measure.parse_request({"path": "/m.gguf", "options": {name: row.read(text, name)}})
    field = {"fit": "fit", "fit-target": "targets_bytes", "fit-ctx": "fit_ctx"}[name]
    assert getattr(asked, field) == meant


@pytest.mark.parametrize("name", SUPERVISORS)
@pytest.mark.parametrize(("text", "meant"), [("90", 90.0), ("2m", 120.0), ("-1", 0.0)])
def test_idle_limits_are_the_supervisors(name: str, text: str, meant: float, tmp_path: Path) -> None:
    """They change a model's entry, and replace no process."""
    write_model(tmp_path / "m.gguf")
    presets = tmp_path / "models.ini"
    specs = []
    for line in ("", f"{name} = {text}\n"):
        presets.write_text(f"[m]\nmodel = {tmp_path}/m.gguf\n{line}")
        loaded = load(["--config", "/dev/null", "--models-preset", str(presets)], {})
        specs.append(loaded.registry.models["m"])
    plain, limited = specs
    assert getattr(limited, SUPERVISORS[name]) == meant
    assert limited.fingerprint == plain.fingerprint
    assert name not in limited.options


def test_everything_that_an_engine_can_be_told_has_an_option() -> None:
    bare = instance_with(None)
    told: set[str] = set()
    for row in INSTANCE:
        spec = instance_with(row)
        told |= differing(spec.engine, bare.engine) | differing(
            spec.defaults.sampling, bare.defaults.sampling
        )
    wanted = {entry.name for kind in (EngineSettings, SamplingParams) for entry in fields(kind)}
    assert wanted - NO_OPTION - told == set()


def differing(one: Any, other: Any) -> set[str]:
    return {entry.name for entry in fields(one) if getattr(one, entry.name) != getattr(other, entry.name)}


@pytest.mark.parametrize("width", [40, 72, 80, 100, 500])
def test_help_is_aligned_and_fits(width: int) -> None:
    for line in help_text(width=width).splitlines():
        assert len(line) <= max(72, min(110, width))
        assert line == line.rstrip()


def test_help_shows_every_option_with_its_default() -> None:
    words = " ".join(help_text(width=100).split())
    for row in SHOWN:
        if row.scope is Scope.MODEL:
            continue
        assert spelled(row) in words, row.name
        assert " ".join(row.help.split()) in words, row.name
        if row.default is not None:
            assert f"(default: {row.default_text or row.kind.render(row.default)})" in words


def test_help_names_what_is_refused() -> None:
    _, _, refused = " ".join(help_text(width=100).split()).partition("happens anyway: ")
    assert refused.split(", ") == [row.name for row in options.ROWS if row not in SHOWN]
    assert "control-vector" in refused


@pytest.mark.parametrize(
    ("spelling", "suggestion"),
    [
        ("ctxsize", "ctx-size"),
        ("FA", "fa"),
        ("n-gpu-layer", "n-gpu-layers"),
        ("Model", "model"),
        ("alais", "alias"),
    ],
)
def test_suggestions(spelling: str, suggestion: str) -> None:
    with pytest.raises(ValueError) as caught:
        options.lookup(spelling, options.PRESET_SCOPES)
    assert str(caught.value) == f"cannot know option '{spelling}': did you mean '{suggestion}'?"


def test_no_suggestion_for_something_else() -> None:
    with pytest.raises(ValueError, match=r"^cannot know option 'zzzz'$"):
        options.lookup("zzzz", options.PRESET_SCOPES)
