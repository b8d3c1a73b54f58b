"""Candidates left out before C: never one that the first stage would keep."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.narrow import largest, near_the_best, sieve
from llamad.engine.stages import Stage


def random_row(seed: int, n_vocab: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n_vocab).astype(np.float32)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(4000, 4200))
def test_the_largest_are_there(seed: int, k: int, n_vocab: int) -> None:
    row = random_row(seed, n_vocab)
    ids = largest(row, k)
    assert ids is not None
    assert set(np.argsort(row)[-k:]) <= set(ids)
    assert list(ids) == sorted(ids)
    assert len(ids) < n_vocab / 2


def test_nothing_is_left_out_where_there_is_no_bound() -> None:
    row = np.zeros(4096, np.float32)
    assert largest(row, 0) is None
    assert largest(row, 65) is None
    assert largest(np.full(4096, np.nan, np.float32), 10) is None


def test_forbidden_entries_do_not_count_among_the_largest() -> None:
    row = np.full(4096, -np.inf, np.float32)
    row[[5, 4000]] = 1.0
    ids = largest(row, 10)
    assert ids is not None
    assert list(ids) == [5, 4000]


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1.0))
def test_what_is_near_the_best_is_there(seed: int, p: float) -> None:
    row = random_row(seed, 1000)
    ids = near_the_best(row, p)
    assert ids is not None
    chances = np.exp(row - row.max())
    assert set(np.flatnonzero(chances >= p)) <= set(ids)
    assert list(ids) == sorted(ids)


def test_only_the_stages_that_are_known_to_drop_are_anticipated() -> None:
    row = random_row(1, 4096)
    assert sieve(Stage("top_k", (10,)))(row) is not None
    assert sieve(Stage("min_p", (0.1, 1)))(row) is not None
    assert sieve(Stage("min_p", (0.1, 2)))(row) is None
    for name in ("top_p", "typ_p"):
        assert sieve(Stage(name, (0.5, 0)))(row) is None
    assert sieve(Stage("min_p", (0.1, 0)))(np.full(64, -np.inf, np.float32)) is None
