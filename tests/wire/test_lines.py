"""Framing: the same lines come out however the bytes were split, and no line is ever held beyond its bound."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.errors import ProtocolError
from llamad.wire.lines import LineBuffer


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(st.binary(max_size=8).filter(lambda line: b"\n" not in line)), st.lists(st.integers(0, 999)))
def test_every_split_gives_the_same_lines(lines: list[bytes], cuts: list[int]) -> None:
    buffer = LineBuffer(8)
    data = b"".join(line + b"\n" for line in lines) + b"rest"
    assert [line for piece in pieces(data, cuts) for line in buffer.feed(piece)] == lines
    assert buffer.flush() == b"rest"
    assert buffer.flush() is None


@pytest.mark.parametrize("step", [1, 2, 5, 100])
def test_a_line_over_the_bound_is_an_error(step: int) -> None:
    data = b"short\n" + b"x" * 9 + b"\n"
    buffer = LineBuffer(8)
    with pytest.raises(ProtocolError, match="over 8 bytes"):
        [buffer.feed(data[at : at + step]) for at in range(0, len(data), step)]


@given(st.lists(st.integers(0, 999)))
def test_a_truncating_buffer_keeps_the_beginning_and_goes_on(cuts: list[int]) -> None:
    buffer = LineBuffer(4, truncate=True)
    data = b"abcdefgh\nxy\n" + b"z" * 1000 + b"\nend\n"
    assert [line for piece in pieces(data, cuts) for line in buffer.feed(piece)] == [
        b"abcd",
        b"xy",
        b"zzzz",
        b"end",
    ]


def test_a_truncating_buffer_holds_no_more_than_its_bound() -> None:
    buffer = LineBuffer(4, truncate=True)
    for _ in range(100):
        buffer.feed(b"x" * 1000)
    assert buffer.flush() is None
