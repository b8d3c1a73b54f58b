"""Arguments in notations that are not JSON: what they mean, and that any text becomes JSON, however it is cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.api.literals import LiteralReader, Literals

GEMMA = Literals("{", "}", ":", ('<|"|>',), by_name=True)
PYTHON = Literals("(", ")", "=", ('"', "'"), python=True)


def read(literals: Literals, pieces: Iterable[str]) -> tuple[str, str, bool]:
    """(the JSON that these pieces make, what is left of them, whether it has come to its end)."""
    reader, text, made = LiteralReader(literals), "", ""
    for piece, last in [*((piece, False) for piece in pieces), ("", True)]:
        text += piece
        size, json_text = reader.feed(text, last)
        text, made = text[size:], made + json_text
    return made, text, reader.ended


@pytest.mark.parametrize(
    ("literals", "text", "value"),
    [
        (GEMMA, "{}", {}),
        (GEMMA, '{city:<|"|>Ro"m\\e<|"|>,days:3}', {"city": 'Ro"m\\e', "days": 3}),
        (GEMMA, '{a:{b:[1,true,<|"|>x<|"|>,{}]},c:[]}', {"a": {"b": [1, True, "x", {}]}, "c": []}),
        (GEMMA, "{city:New York,n:-1.5e3,z:null}", {"city": "New York", "n": -1500.0, "z": None}),
        (GEMMA, "{a, b:, c:[,1,]}", {"a": None, "b": None, "c": [1]}),
        (PYTHON, "()", {}),
        (PYTHON, '(city="Paris", days=3)', {"city": "Paris", "days": 3}),
        (PYTHON, "(s=True, n=None, f=False, j=true)", {"s": True, "n": None, "f": False, "j": True}),
        (
            PYTHON,
            r"""(a='it\'s', b="\"\n\\d\d", c='\x41\u00e9\ud83e\udd8a')""",
            {"a": "it's", "b": '"\n\\d\\d', "c": "Aé🦊"},
        ),
        (PYTHON, "(d={'a': (1, 2), \"b\": [{}]}, e=[])", {"d": {"a": [1, 2], "b": [{}]}, "e": []}),
        (PYTHON, "('x')", {"x": None}),
    ],
    ids=str,
)
def test_what_it_means(literals: Literals, text: str, value: Any) -> None:
    made, left, ended = read(literals, [text + "rest"])
    assert (json.loads(made), left, ended) == (value, "rest", True)
    assert read(literals, text + "rest") == (made, left, ended)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text("ab \"'\\\n{,é", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from([GEMMA, PYTHON]),
    st.dictionaries(st.sampled_from(["city", "days", "a_b"]), VALUES, max_size=3),
)
def test_what_is_written_is_what_is_read(literals: Literals, arguments: dict[str, Any]) -> None:
    made, left, ended = read(literals, literals.written(arguments))
    assert (json.loads(made), left, ended) == (arguments, "", True)


_BITS = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ":",
    "=",
    ",",
    '"',
    "'",
    "\\",
    '<|"|>',
    '<|"',
    "a",
    "1",
    " ",
    "\\u12",
    "True",
]


@given(
    st.sampled_from([GEMMA, PYTHON]),
    st.lists(st.sampled_from(_BITS), max_size=16).map("".join),
    st.lists(st.integers(0, 40), max_size=5),
)
def test_any_text_is_read_the_same_however_it_is_cut(literals: Literals, text: str, cuts: list[int]) -> None:
    text = literals.opens + text
    bounds = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    whole = read(literals, [text])
    assert read(literals, [text[start:end] for start, end in itertools.pairwise(bounds)]) == whole
    if whole[2]:
        assert isinstance(json.loads(whole[0]), dict)


def test_a_string_comes_as_it_is_written() -> None:
    reader = LiteralReader(GEMMA)
    assert reader.feed('{city:<|"|>Ro', False) == (13, '{"city": "Ro')
    assert reader.feed('me<|"', False) == (2, "me")
    assert reader.feed('<|"|>,da', False) == (6, '"')
