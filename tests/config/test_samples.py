"""The files that are installed: valid as they are, and valid in every line that they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llamad.config import ini, layers, options
from llamad.config.option import Option, Scope

ETC = Path(__file__).parents[2] / "etc" / "llamad"
SHOWN = re.compile(r"^[#;] ?(?=\[|[A-Za-z_][A-Za-z0-9_.-]* = )")


def sections(name: str, shown: bool) -> list[ini.Section]:
    lines = (ETC / name).read_text().splitlines()
    text = "\n".join(SHOWN.sub("", line) if shown else line for line in lines)
    found, problems = ini.parse(text, name)
    assert [str(problem) for problem in problems] == []
    return found


@pytest.mark.parametrize("shown", [False, True])
def test_llamad_ini(shown: bool) -> None:
    [section] = sections("llamad.ini", shown)
    layer, problems = layers.read_entries(section.entries, "llamad.ini", options.DAEMON_SCOPES)
    assert [str(problem) for problem in problems] == []
    if shown:
        assert {row.name for row in options.by_setting().values()} - layer.keys() == set()


def test_llamad_ini_shows_the_defaults() -> None:
    active = {entry.key for section in sections("llamad.ini", shown=False) for entry in section.entries}
    [section] = sections("llamad.ini", shown=True)
    layer, _ = layers.read_entries(section.entries, "llamad.ini", options.DAEMON_SCOPES)
    for name, setting in layer.items():
        if setting.option.scope is Scope.DAEMON and name not in active and setting.option.default is not None:
            assert setting.value == setting.option.default, name


@pytest.mark.parametrize("shown", [False, True])
def test_models_ini(shown: bool) -> None:
    seen: set[str] = set()
    for section in sections("models.ini", shown):
        if not section.name:
            assert [(entry.key, entry.value) for entry in section.entries] == [("version", "1")]
            continue
        layer, problems = layers.read_entries(
            section.entries, "models.ini", options.PRESET_SCOPES, for_all=section.name == "*"
        )
        assert [str(problem) for problem in problems] == []
        seen |= layer.keys()
    if shown:
        assert {row.name for row in options.ROWS if common(row)} - seen == set()


def common(row: Option) -> bool:
    known = row.scope is not Scope.DAEMON and row.honoured is None
    return known and row.name not in RARE and not row.name.startswith(RARE_KINDS)


RARE_KINDS = ("spec-draft-", "spec-ngram-map-k-", "spec-ngram-mod-", "spec-default")
RARE = {
    "mmproj",
    "dedup-cache-models",
    "chat-template-file",
    "grammar-file",
    "json-schema-file",
    "sampler-seq",
    "skip-chat-parsing",
}
