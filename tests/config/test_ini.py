"""The INI format: what is read, where, and that what is written is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.config import ini
from llamad.config.ini import Entry, Section


def read(text: str) -> list[tuple[str, str, str, int]]:
    """(section, key, value, line) of everything in a faultless file."""
    sections, problems = ini.parse(text, "f")
    assert problems == []
    return [
        (section.name, entry.key, entry.value, entry.line)
        for section in sections
        for entry in section.entries
    ]


def faults(text: str) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in ini.parse(text, "f")[1]]


VALUES = {
    "plain": "plain",
    "  blanks \t": "blanks",
    "": "",
    "; only a comment": "",
    "a ; comment": "a",
    "a # comment": "a",
    "a\t#comment": "a",
    "a#b;c": "a#b;c",
    "a=b": "a=b",
    '"a # b"': "a # b",
    '"a" ; comment': "a",
    '" kept "': " kept ",
    r'"\"\\\n\t"': '"\\\n\t',
    "'a \\ \" b' # comment": 'a \\ " b',
    '""': "",
    '{"enable_thinking": false}': '{"enable_thinking": false}',
    "it's": "it's",
    "zażółć \u00a0模型": "zażółć \u00a0模型",
}


@pytest.mark.parametrize(("written", "value"), VALUES.items())
def test_values(written: str, value: str) -> None:
    assert read(f"[s]\nk = {written}\n") == [("s", "k", value, 2)]
    assert read(f"[s]\nk={written}") == [("s", "k", value, 2)]


SECTIONS = {
    "[a]": "a",
    "  [ a ]  ": "a",
    "[ggml-org/MY-MODEL-GGUF:Q8_0]": "ggml-org/MY-MODEL-GGUF:Q8_0",
    "[a] ; see [b]": "a",
    "[a]# b]": "a",
    "[a[0]]": "a[0]",
    "[a]b]": "a]b",
    "[*]": "*",
    "[模型 x]": "模型 x",
    "[a;b#c]": "a;b#c",
}


@pytest.mark.parametrize(("written", "name"), SECTIONS.items())
def test_section_names(written: str, name: str) -> None:
    assert read(f"{written}\nk = 1") == [(name, "k", "1", 2)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_mark(end: str) -> None:
    text = "\ufeff" + end.join(["version = 1", "", "; c", "[a]", "k = 1  ", "# c", "[b]", "k = 2"])
    assert read(text) == [("", "version", "1", 1), ("a", "k", "1", 5), ("b", "k", "2", 8)]


def test_case_counts() -> None:
    assert read("[A]\nk=1\nK=2\n[a]\nk=3") == [("A", "k", "1", 2), ("A", "K", "2", 3), ("a", "k", "3", 5)]


def test_all_faults_at_once_each_with_its_line() -> None:
    text = "[a]\nk = 1\nk = 2\nno value\n[a]\nz = 1\n[b\nlost = 1\n[c]\nk = 'x\n= 1\n"
    assert faults(text) == [
        (3, "cannot set 'k' twice: it is set on line 2"),
        (4, "cannot read 'no value': expected [section], key = value, or a comment"),
        (5, "cannot have the section [a] twice: it begins on line 1"),
        (7, "cannot read '[b' as a section: write [name]"),
        (10, 'cannot read "\'x": the quote does not end, or something follows it'),
        (11, "cannot read '= 1': expected [section], key = value, or a comment"),
    ]
    assert ini.parse(text, "f")[0] == [
        Section("a", 1, (Entry("k", "1", 2),)),
        Section("c", 9, ()),
    ], "what follows a faulty header patches nobody"


def test_a_fault_names_the_model_that_it_costs() -> None:
    problems = ini.parse("[a]\noops\n[b]\n[a]\n[[\nx\n", "f")[1]
    assert [(problem.line, problem.model) for problem in problems] == [(2, "a"), (4, "a"), (5, "")]


@pytest.mark.parametrize(
    "text",
    [
        "[" + "x" * 600 + "]",
        "[a]\nk = " + "x" * (ini.VALUE_CHARS_MAX + 1),
        "[a\x07b]",
        "[ ]",
        "[a]\n-k = 1",
        "[a]\n1k = 1",
    ],
)
def test_bounds_and_names(text: str) -> None:
    assert len(faults(text)) == 1


def test_what_is_not_utf8_has_a_line() -> None:
    text, problems = ini.decode(b"[a]\nk = 1\nname = \xff\nlost = 1\n", "f")
    assert text == "[a]\nk = 1"
    assert [str(problem) for problem in problems] == ["f:3: cannot read byte 0xff: it is not UTF-8"]


def test_a_file_of_one_long_line_takes_no_time() -> None:
    for text in (
        "[" * 200_000,
        "[" + "]" * 200_000,
        "[a]\nk = " + '"' * 200_000,
        "[a]\nk = " + " ;" * 100_000,
        "k" * 200_000,
    ):
        ini.parse(text, "f")


@given(st.text(max_size=40))
def test_any_value_survives_quoting(value: str) -> None:
    assert read(ini.render("s", [("k", value)])) == [("s", "k", value, 2)]


names = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="];#"), min_size=1, max_size=20
)
keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,10}", fullmatch=True)


@given(
    names.filter(lambda name: name == name.strip(" \t")),
    st.dictionaries(keys, st.text(max_size=20), max_size=5),
)
def test_any_section_survives(name: str, entries: dict[str, str]) -> None:
    sections, problems = ini.parse(ini.render(name, list(entries.items())), "f")
    assert problems == []
    assert [section.name for section in sections] == [name]
    assert {entry.key: entry.value for entry in sections[0].entries} == entries


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    for problem in ini.parse(text, "f")[1]:
        assert problem.message.startswith("cannot ")
        assert problem.line >= 1
