"""Pooling and norms: the arithmetic of vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from llamad.engine.embedding import POOLINGS, normalized, pool_of

ROWS = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 12), st.integers(1, 5)),
    elements=st.floats(-1e3, 1e3, width=32, allow_subnormal=False),
)


@settings(deadline=None)
@given(rows=ROWS, cuts=st.lists(st.integers(1, 11), max_size=4))
@pytest.mark.parametrize("pooling", POOLINGS)
def test_pieces_come_to_the_same_as_the_whole(pooling: str, rows: np.ndarray, cuts: list[int]) -> None:
    wanted = {
        "none": rows,
        "mean": rows.astype(np.float64).mean(axis=0, keepdims=True),
        "cls": rows[:1],
        "last": rows[-1:],
        "rank": rows[-1:],
    }[pooling]
    pool = pool_of(pooling)
    for piece in np.split(rows, sorted({cut for cut in cuts if cut < len(rows)})):
        pool.push(piece)
    assert pool.result() == pytest.approx(wanted, rel=1e-5, abs=1e-4)


def test_a_view_that_changes_afterwards_changes_nothing() -> None:
    for pooling in POOLINGS:
        rows = np.ones((2, 3), np.float32)
        pool = pool_of(pooling)
        pool.push(rows)
        rows[:] = 7
        assert (pool.result() == 1).all(), pooling


@pytest.mark.parametrize(
    ("norm", "wanted"),
    [
        (-1, [3.0, -4.0, 0.0]),
        (0, [0.75 * 32760, -32760.0, 0.0]),
        (1, [3 / 7, -4 / 7, 0.0]),
        (2, [0.6, -0.8, 0.0]),
        (3, [3 / 91 ** (1 / 3), -4 / 91 ** (1 / 3), 0.0]),
        (100_000, [0.75, -1.0, 0.0]),
    ],
)
def test_norms_are_llama_servers(norm: int, wanted: list[float]) -> None:
    vectors = np.array([[3, -4, 0], [0, 0, 0]], np.float32)
    found = normalized(vectors, norm)
    assert found.dtype == np.float32
    assert found[0] == pytest.approx(wanted, rel=1e-6)
    assert not found[1].any()


@settings(deadline=None)
@given(rows=ROWS, norm=st.integers(1, 2000))
def test_a_vector_that_is_not_zero_gets_the_length_one(rows: np.ndarray, norm: int) -> None:
    found = np.abs(normalized(rows, norm).astype(np.float64))
    assert np.isfinite(found).all()
    largest = found.max(axis=1, initial=0.0)
    assert (largest <= 1 + 1e-6).all()
    if norm <= 4:
        lengths = (found**norm).sum(axis=1) ** (1 / norm)
        assert lengths[rows.any(axis=1)] == pytest.approx(1, rel=1e-4)
