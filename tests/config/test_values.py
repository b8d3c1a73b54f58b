"""Strict typed parsing: every spelling that is taken, and that nothing else is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.config.file_list import FileList
from llamad.config.values import (
    SECONDS_MAX,
    Choice,
    Duration,
    Flag,
    Kind,
    Listing,
    Number,
    Size,
    Template,
    Text,
    Whole,
    model_name,
)
from llamad.units import GIB, MIB

MARGIN = Size(MIB, words={"off": -1})
LAYERS = Whole(-1, 100, words={"all": -1, "auto": -1})

TAKEN = [
    *[(Flag(), text, True) for text in ("true", "True", "TRUE", "1", "on", "ON", "enabled")],
    *[(Flag(), text, False) for text in ("false", "False", "0", "off", "Off", "disabled")],
    (Whole(), "0", 0),
    (Whole(), "+7", 7),
    (Whole(), "007", 7),
    (LAYERS, "-1", -1),
    (LAYERS, "All", -1),
    (Number(), ".5", 0.5),
    (Number(), "1.", 1.0),
    (Number(), "-2.5e-3", -0.0025),
    (Duration(), "0", 0.0),
    (Duration(), "1.5s", 1.5),
    (Duration(), "500ms", 0.5),
    (Duration(), "2H", 7200.0),
    (Size(), "128M", 128 * MIB),
    (Size(), "1.5GiB", GIB * 3 // 2),
    (MARGIN, "512", 512 * MIB),
    (MARGIN, "2GiB", 2 * GIB),
    (MARGIN, "OFF", -1),
    (Choice(("on", "off"), same={"1": "on"}), "1", "on"),
    (Choice(("f16", "q8_0")), "Q8_0", "q8_0"),
    (Text(), "", ""),
    (Listing(), "a, b ,c", ("a", "b", "c")),
    (FileList(), 'a b, "c,d" ,/e:f', ("a b", "c,d", "/e:f")),
    (FileList(), "", ()),
    (FileList(scaled=True), "a:0.5,b:c:-2", ("a:0.5", "b:c:-2")),
    (Listing(), "", ()),
    (Template(), "chatml", "chatml"),
    (Template(), "{% for m in messages %}", "{% for m in messages %}"),
]

REFUSED = [
    *[(Flag(), text) for text in ("", "yes", "no", "y", "2", "-1", "tru", "on ", "null")],
    *[
        (Whole(), text)
        for text in ("", "x", "1.0", "1e3", "0x10", "1_000", "4k", "-1", "٣", "2147483648", "9" * 30)
    ],
    (LAYERS, "some"),
    (LAYERS, "-2"),
    *[(Number(), text) for text in ("", "nan", "inf", "1e999", "1,5", "0x1p3", "one", "1" * 60)],
    (Number(0.0, 1.0), "1.01"),
    (Number(0.0, 1.0), "-0.01"),
    *[(Duration(), text) for text in ("", "-1", "soon", "1y", "1 2", "inf", str(SECONDS_MAX * 2), "9" * 400)],
    *[(Size(), text) for text in ("", "-1", "big", "1X", "1.5", "9999999T")],
    (Choice(("on", "off")), "maybe"),
    (Text(may_be_empty=False), ""),
    (Text(), "a\0b"),
    (Listing(), "a,,b"),
    (FileList(), "a,,b"),
    (FileList(), "a\0"),
    (FileList(), ",".join("x" * 65)),
    (FileList(scaled=True), "a"),
    (FileList(scaled=True), ":1"),
    (FileList(scaled=True), "a:"),
    (FileList(scaled=True), "a:inf"),
    (FileList(scaled=True), "a:1,b:x"),
    (Listing(), ","),
    (Listing(), ",".join("x" * 300)),
    (Listing(item="[0-9]+", what="a number"), "1,x"),
    (Template(), "llama3"),
]


@pytest.mark.parametrize(("kind", "text", "value"), TAKEN)
def test_taken(kind: Kind, text: str, value: object) -> None:
    parsed = kind.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)
    assert kind.parse(kind.render(parsed)) == parsed


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_refused_with_a_reason(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        kind.parse(text)
    assert str(caught.value)
    assert not str(caught.value).startswith("cannot"), "the option's name comes first, from the table"


@pytest.mark.parametrize(
    "kind",
    [
        Flag(),
        Whole(),
        LAYERS,
        Number(),
        Duration(),
        Size(),
        MARGIN,
        Choice(("on", "off")),
        Text(),
        Listing(),
        FileList(),
        FileList(scaled=True),
        Template(),
    ],
    ids=lambda kind: type(kind).__name__,
)
@given(st.text(max_size=30))
def test_any_text_is_taken_or_refused(kind: Kind, text: str) -> None:
    try:
        value = kind.parse(text)
    except ValueError:
        return
    assert kind.parse(kind.render(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive(value: float) -> None:
    assert Number().parse(Number().render(value)) == value


@given(st.floats(0, SECONDS_MAX))
def test_durations_survive_to_a_nanosecond(value: float) -> None:
    assert math.isclose(Duration().parse(Duration().render(value)), value, abs_tol=1e-9)


@given(st.integers(0, 2**50))
def test_sizes_survive(value: int) -> None:
    assert Size().parse(Size().render(value)) == value


@pytest.mark.parametrize(
    "name", ["a", "ggml-org/M:Q8_0", "zażółć gęślą", "模型", "👩‍🔬", "a]b[c", "*x", "a=b"]
)
def test_names_of_all_scripts(name: str) -> None:
    assert model_name(name) == name


@pytest.mark.parametrize("name", ["", "a\nb", "a\0", "\x1b[0m", "\udc80", "x" * 513])
def test_names_that_break_lines_or_terminals(name: str) -> None:
    with pytest.raises(ValueError, match="cannot"):
        model_name(name)
