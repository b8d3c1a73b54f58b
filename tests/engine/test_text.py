"""Text: whatever the cuts, the parts put together are the whole, and no part says too much."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llamad.engine.text import Characters, StopFilter, TextStream, first_stop

WORDS = "Zażółć gęślą jaźń, 日本語のテスト 🦊👩‍👩‍👧 é — end"
small = st.text("abc", max_size=30)
stops = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces, cut at these places."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def whole(text: str, stops: list[str]) -> tuple[str, str | None]:
    """What a stream must give in the end, found by reading one character after the other."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


def run(stream: TextStream, pieces: list[bytes]) -> tuple[list[str], str | None]:
    parts = []
    for piece in pieces:
        part, stop = stream.push(piece)
        parts.append(part)
        if stop is not None:
            return parts, stop
    return [*parts, stream.flush()], None


def test_every_split_in_two_and_byte_by_byte() -> None:
    data = WORDS.encode()
    for place in range(len(data) + 1):
        parts, _ = run(TextStream(()), [data[:place], data[place:]])
        assert "".join(parts) == WORDS
        assert "\ufffd" not in "".join(parts)
    parts, _ = run(TextStream(()), [data[place : place + 1] for place in range(len(data))])
    assert "".join(parts) == WORDS


@given(st.text(max_size=40), st.lists(st.integers(0, 200), max_size=20))
def test_valid_text_survives_any_cut(text: str, places: list[int]) -> None:
    parts, _ = run(TextStream(()), cut(text.encode(), places))
    assert "".join(parts) == text


@given(st.binary(max_size=40), st.lists(st.integers(0, 200), max_size=20))
def test_any_bytes_decode_alike_whatever_the_cut(data: bytes, places: list[int]) -> None:
    once, cuts = Characters(), Characters()
    assert "".join(cuts.push(piece) for piece in cut(data, places)) == once.push(data)


def test_a_character_that_never_ends_is_dropped_and_a_broken_one_is_marked() -> None:
    assert run(TextStream(()), ["a🦊".encode()[:-1]])[0] == ["a", ""]
    assert run(TextStream(()), [b"a\xffb"])[0] == ["a\ufffdb", ""]


@given(small, stops, st.lists(st.integers(0, 60), max_size=12))
@example("abc", ["abcd", "bc"], [1, 2])
@example("ab", ["b", "ab"], [1])
def test_stop_strings_do_not_depend_on_the_cut(text: str, stops: list[str], places: list[int]) -> None:
    parts, stop = run(TextStream(stops), cut(text.encode(), places))
    expected, expected_stop = whole(text, stops)
    assert ("".join(parts), stop) == (expected, expected_stop)


@given(small, stops)
def test_nothing_is_held_longer_than_it_could_matter(text: str, stops: list[str]) -> None:
    stream, out = StopFilter(stops), ""
    for end, character in enumerate(text, 1):
        part, stop = stream.push(character)
        out += part
        if stop is not None:
            return
        held = text[len(out) : end]
        assert not held or any(other != held and other.startswith(held) for other in stops)


def test_first_stop_is_the_one_complete_first() -> None:
    assert first_stop("xxabcd", ["abcd", "bc"]) == (3, "bc")
    assert first_stop("xxab", ["b", "ab"]) == (2, "ab")
    assert first_stop("xx", ["b"]) is None


def test_empty_stop_strings_mean_nothing() -> None:
    assert run(TextStream(["", ""]), [b"abc"]) == (["abc", ""], None)


# ---- indentation


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("return x\n    y = 2\n    z = 3\n", "return x\n    y = 2\n    z = 3\n"),
        ("return x\n    y = 2\ndef g():\n", "return x\n    y = 2\n"),
        ("return x\n  y = 2\n", "return x\n  "),
        ("return x\n\n    y", "return x\n"),
        ("x", "x"),
        ("return x\n\t \t y", "return x\n\t \t y"),
    ],
)
@pytest.mark.parametrize("stops", [(), ("\n\n\n", "zzz")])
def test_a_line_that_is_indented_less_ends_the_text(text: str, kept: str, stops: tuple[str, ...]) -> None:
    for size in (1, 2, 3, 100):
        stream, given = TextStream(stops, n_indent=4), ""
        for start in range(0, len(text), size):
            more, stop = stream.push(text[start : start + size].encode())
            given += more
            assert stop is None
            if stream.outdented:
                break
        assert given + stream.flush() == kept


def test_lines_may_do_as_they_like() -> None:
    assert TextStream(()).push(b"x\ny\n\nz") == ("x\ny\n\nz", None)
