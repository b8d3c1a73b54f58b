"""The replay ring: bytes by offset, each exactly once, or an error that says which are left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.child.ring import PIECE_BYTES_MAX, BytesLost, Ring

PIECES = st.lists(st.binary(max_size=40), max_size=30)


def whole(ring: Ring, offset: int) -> bytes:
    """All that is there from an offset on."""
    found = b""
    while piece := ring.read(offset + len(found)):
        found += piece
    return found


@given(PIECES, st.integers(1, 100), st.data())
def test_it_gives_what_was_written_from_any_offset_or_says_what_is_lost(
    pieces: list[bytes], limit: int, data: st.DataObject
) -> None:
    ring, written = Ring(limit), b""
    for piece in pieces:
        ring.append(piece)
        written += piece
        assert len(ring) <= limit
        assert (ring.start, ring.end) == (max(0, len(written) - limit), len(written))
    offset = data.draw(st.integers(0, len(written) + 1))
    if offset > len(written):
        with pytest.raises(ValueError, match=str(offset)):
            ring.read(offset)
    elif offset < len(written) - limit:
        with pytest.raises(BytesLost) as lost:
            ring.read(offset)
        assert whole(ring, lost.value.start) == written[lost.value.start :]
    else:
        assert whole(ring, offset) == written[offset:]


@given(PIECES, st.lists(st.integers(0, 30)), st.integers(60, 200))
def test_a_reader_that_keeps_up_gets_each_byte_once_whatever_the_rhythm(
    pieces: list[bytes], pauses: list[int], limit: int
) -> None:
    ring, read = Ring(limit), b""
    for number, piece in enumerate(pieces):
        ring.append(piece)
        if number not in pauses or ring.end - len(read) > limit - 40:
            read += ring.read(len(read))
    assert read + whole(ring, len(read)) == b"".join(pieces)


@given(st.binary(max_size=50), st.integers(-5, 80))
def test_drop_gives_up_no_more_than_there_is(data: bytes, count: int) -> None:
    ring = Ring(100)
    ring.append(data)
    dropped = ring.drop(count)
    assert dropped == max(0, min(count, len(data)))
    assert (ring.start, ring.end) == (dropped, len(data))


def test_a_read_is_bounded() -> None:
    ring = Ring(1 << 20)
    ring.append(b"x" * (PIECE_BYTES_MAX + 1))
    assert len(ring.read(0)) == PIECE_BYTES_MAX
