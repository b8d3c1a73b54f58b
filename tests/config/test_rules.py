"""Request rules and variants in models.ini."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamad.config.diff import diff_registries
from llamad.config.load import load
from llamad.config.settings import ModelSpec, Registry, RequestRules
from tests.config.gguf_kit import write_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path / "good.gguf")
    return tmp_path


def registry(folder: Path, text: str) -> Registry:
    presets = folder / "models.ini"
    presets.write_text("version = 1\n" + text.replace("GOOD", str(folder / "good.gguf")))
    return load(["--config", "/dev/null", "--models-preset", str(presets)], {}).registry


CHAT = "[chat]\nmodel = GOOD\n"


def test_values_are_json_or_else_text(folder: Path) -> None:
    found = registry(
        folder,
        CHAT
        + """default.temperature = 0.20
default.stop = ["a", "ü"]
default.user = bob
default.seed = "7"
default.note = '"7"'
force.max_tokens = 256
force.stream = true
remove = user, metadata, user
""",
    )
    assert not found.problems
    assert found.models["chat"].rules == RequestRules(
        {"note": '"7"', "seed": "7", "stop": '["a","ü"]', "temperature": "0.2", "user": '"bob"'},
        {"max_tokens": "256", "stream": "true"},
        ("user", "metadata"),
    )


def test_rules_for_all_under_the_models_own_under_the_variants(folder: Path) -> None:
    found = registry(
        folder,
        "[*]\ndefault.a = 1\ndefault.b = 1\nremove = x\n"
        + CHAT
        + "default.b = 2\ndefault.c = 2\n"
        + "[chat-v]\nvariant-of = chat\ndefault.c = 3\nforce.d = 3\nremove =\n",
    )
    assert not found.problems
    spec = found.models["chat"]
    assert spec.rules == RequestRules({"a": "1", "b": "2", "c": "2"}, {}, ("x",))
    assert spec.variants == {"chat-v": RequestRules({"a": "1", "b": "2", "c": "3"}, {"d": "3"}, ())}
    assert found.resolve("chat-v") is spec
    assert spec.rules_for("chat-v") is spec.variants["chat-v"]
    assert spec.rules_for("chat") is spec.rules
    assert ModelSpec.from_document(spec.to_document()) == spec


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (CHAT + "default.model = x\n", 4, "cannot use 'default.model': write default.FIELD"),
        (CHAT + "force.a.b = 1\n", 4, "cannot use 'force.a.b'"),
        (CHAT + "remove = model\n", 4, "cannot set 'remove': 'model' is not a parameter's name"),
        ("[*]\nvariant-of = chat\n", 3, "cannot set 'variant-of' for all models"),
        (CHAT + "[v]\nvariant-of = other\n", 5, "cannot be a variant of 'other': there is no such model"),
        (CHAT + "[v]\nvariant-of = v\n", 5, "cannot be a variant of 'v': there is no such model"),
        (CHAT + "[v]\nvariant-of = chat\nc = 5\n", 6, "cannot set 'ctx-size' for a variant"),
        (
            CHAT + "[v]\nvariant-of = chat\n[w]\nmodel = GOOD\nalias = v\n",
            8,
            "cannot use the alias 'v': a model has this name",
        ),
    ],
)
def test_faults(folder: Path, text: str, line: int, message: str) -> None:
    [problem] = registry(folder, text).problems
    assert problem.line == line
    assert problem.message.startswith(message)


def test_a_variant_of_a_faulty_model_goes_with_it(folder: Path) -> None:
    found = registry(folder, "[chat]\nmodel = GOOD\nport = 1\n[v]\nvariant-of = chat\n")
    assert [problem.model for problem in found.problems] == ["chat"]
    assert not found.models


def test_other_rules_need_no_other_process(folder: Path) -> None:
    before = registry(folder, CHAT)
    after = registry(folder, CHAT + "default.a = 1\n[v]\nvariant-of = chat\n")
    diff = diff_registries(before, after)
    assert diff.relabelled == diff.unchanged == ("chat",)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("default.temperature = hot", "'hot' is not a number"),
        ("force.max_tokens = 1.5", "'1.5' is not a whole number"),
        ("force.top_k = true", "'true' is not a whole number"),
        ("default.ignore_eos = 1", "'1' is not true or false"),
    ],
)
def test_a_parameter_of_another_type_is_told_before_any_client_is(
    folder: Path, line: str, reason: str
) -> None:
    found = registry(folder, f"{CHAT}{line}\n")
    assert [problem.message for problem in found.problems] == [f"cannot set '{line.split()[0]}': {reason}"]
    assert not found.models


def test_numbers_that_mean_the_same_are_taken(folder: Path) -> None:
    found = registry(folder, CHAT + "default.temperature = 1\ndefault.top_k = 4e1\nforce.seed = null\n")
    assert not found.problems


def test_a_schema_that_is_none(folder: Path) -> None:
    found = registry(folder, CHAT + "json-schema = {bad\n[b]\nmodel = GOOD\njson-schema = []\n")
    assert [problem.message for problem in found.problems] == [
        "cannot set 'json-schema': '{bad' is no JSON",
        "cannot set 'json-schema': '[]' is no JSON schema, which is an object",
    ]
