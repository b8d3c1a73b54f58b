"""Precedence and patching, as tables."""

from __future__ import annotations

import itertools

import pytest

from llamad.config import options
from llamad.config.layers import Layer, Setting
from llamad.config.merge import Draft, Preset, merge
from llamad.config.sources import Found

SCOPES = (*options.PRESET_SCOPES, *options.DAEMON_SCOPES)


def layer(line: int = 1, **values: str) -> Layer:
    made = {}
    for key, text in values.items():
        option = options.lookup(key.replace("_", "-"), options.PRESET_SCOPES)
        made[option.name] = Setting(option, option.kind.parse(text), "models.ini", line)
    return made


def daemon(**values: str) -> Layer:
    made = {}
    for key, text in values.items():
        option = options.lookup(key.replace("_", "-"), options.DAEMON_SCOPES)
        made[option.name] = Setting(option, option.kind.parse(text), "command line")
    return made


def preset(name: str, line: int = 1, **values: str) -> Preset:
    return Preset(name, "models.ini", line, layer(line, **values))


def one(drafts: list[Draft]) -> Draft:
    [draft] = drafts
    return draft


@pytest.mark.parametrize("said", list(itertools.product([False, True], repeat=3)))
def test_the_last_layer_that_says_something_counts(said: tuple[bool, bool, bool]) -> None:
    for_all, own, over = said
    drafts, problems = merge(
        [Found("m", "/d/m.gguf")],
        [preset("m", **({"ctx_size": "2"} if own else {}))],
        layer(**({"ctx_size": "1"} if for_all else {})),
        daemon(**({"ctx_size": "3"} if over else {})),
    )
    assert problems == []
    assert one(drafts).value("ctx-size", 0) == (3 if over else 2 if own else 1 if for_all else 0)


def test_a_preset_patches_only_the_keys_it_writes() -> None:
    found = Found("m", "/d/m.gguf", mmproj="/d/mmproj.gguf")
    drafts, _ = merge([found], [preset("m", threads="2")], layer(ctx_size="1", threads="1"), {})
    draft = one(drafts)
    assert (draft.path, draft.mmproj, draft.source) == ("/d/m.gguf", "/d/mmproj.gguf", "models-dir")
    assert (draft.value("ctx-size", 0), draft.value("threads", 0)) == (1, 2)


def test_a_preset_that_names_another_file_takes_nothing_from_the_found_one() -> None:
    found = Found("m", "/d/m.gguf", mmproj="/d/mmproj.gguf", notes=("n",))
    draft = one(merge([found], [preset("m", model="/e/x.gguf")], {}, {})[0])
    assert (draft.path, draft.mmproj, draft.notes) == ("/e/x.gguf", "", ())


def test_a_preset_settles_what_a_directory_leaves_open() -> None:
    found = Found("m", "/d/m", fault="cannot choose a model in '/d/m': it holds a.gguf, b.gguf")
    drafts, problems = merge([found], [], {}, {})
    assert (drafts, [problem.message for problem in problems]) == ([], [found.fault])
    drafts, problems = merge([found], [preset("m", model="/d/m/a.gguf")], {}, {})
    assert (one(drafts).path, problems) == ("/d/m/a.gguf", [])


@pytest.mark.parametrize(
    ("values", "mmproj"),
    [({}, "/d/p.gguf"), ({"mmproj": "/e/p.gguf"}, "/e/p.gguf"), ({"mmproj_auto": "false"}, "")],
)
def test_which_projector(values: dict[str, str], mmproj: str) -> None:
    found = Found("m", "/d/m.gguf", mmproj="/d/p.gguf")
    assert one(merge([found], [preset("m", **values)], {}, {})[0]).mmproj == mmproj


def test_names_are_exact() -> None:
    drafts, problems = merge([Found("Model", "/d/Model.gguf")], [preset("model", ctx_size="1")], {}, {})
    assert one(drafts).value("ctx-size", 0) == 0
    assert [(problem.model, problem.line) for problem in problems] == [("model", 1)]


def test_daemon_options_do_not_leak_into_models() -> None:
    drafts, _ = merge([Found("m", "/d/m.gguf")], [], {}, daemon(port="1", stop_timeout="3", ctx_size="5"))
    assert set(one(drafts).layer) == {"ctx-size"}


def test_the_order_is_stable() -> None:
    found = [Found("b", "/b"), Found("c", "/c")]
    presets = [preset("z", model="/z"), preset("c"), preset("a", model="/a")]
    assert [draft.name for draft in merge(found, presets, {}, {})[0]] == ["b", "c", "z", "a"]


ALIASES = {
    "unlike": ([("a", "x"), ("b", "y")], []),
    "the same twice in one list": ([("a", "x,x")], []),
    "its own name": ([("a", "a,x")], []),
    "case counts": ([("a", "x"), ("b", "X")], []),
    "of two models": ([("a", "x"), ("b", "y,x")], [("b", "cannot use the alias 'x': 'a' has it on line 1")]),
    "another model's name": (
        [("a", "x"), ("b", "a")],
        [("b", "cannot use the alias 'a': a model has this name")],
    ),
    "a later model's name": (
        [("a", "b"), ("b", "y")],
        [("a", "cannot use the alias 'b': a model has this name")],
    ),
    "of three models": (
        [("a", "x"), ("b", "x"), ("c", "x")],
        [
            ("b", "cannot use the alias 'x': 'a' has it on line 1"),
            ("c", "cannot use the alias 'x': 'a' has it on line 1"),
        ],
    ),
}


@pytest.mark.parametrize(("models", "expected"), ALIASES.values(), ids=ALIASES.keys())
def test_aliases(models: list[tuple[str, str]], expected: list[tuple[str, str]]) -> None:
    presets = [
        preset(name, line, model=f"/{name}", alias=alias) for line, (name, alias) in enumerate(models, 1)
    ]
    problems = merge([], presets, {}, {})[1]
    assert [(problem.model, problem.message) for problem in problems] == expected


def test_nobody_answers_in_the_place_of_a_model_that_is_left_out() -> None:
    broken = Found("gone", "/d/gone", fault="cannot choose")
    problems = merge([broken], [preset("a", model="/a", alias="gone")], {}, {})[1]
    assert [problem.model for problem in problems] == ["gone", "a"]
