"""Likelihoods: right against a plain softmax, finite whatever comes, and told together with their text."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.logprobs import LOG_ZERO, Held, after_sampling, before_sampling


@given(st.integers(0, 2**32 - 1), st.integers(0, 30), st.integers(40, 5000))
def test_before_sampling_is_the_softmax(seed: int, n: int, n_vocab: int) -> None:
    row = np.random.default_rng(seed).normal(scale=4, size=n_vocab).astype(np.float32)
    token = seed % n_vocab
    ranked = before_sampling(row, token, n)
    logs = row - np.log(np.exp(row.astype(np.float64)).sum())
    assert ranked.value == pytest.approx(float(logs[token]), abs=1e-4)
    assert [id for id, _ in ranked.top] == [int(id) for id in np.argsort(-logs, kind="stable")[:n]]
    assert [value for _, value in ranked.top] == pytest.approx(
        sorted(logs.tolist(), reverse=True)[:n], abs=1e-4
    )


def test_what_cannot_come_has_a_finite_logarithm() -> None:
    row = np.array([0.0, -np.inf, -1e30], np.float32)
    assert before_sampling(row, 1, 3).value == LOG_ZERO
    assert [value for _, value in before_sampling(row, 0, 3).top] == [0.0, LOG_ZERO, LOG_ZERO]
    broken = before_sampling(np.full(4, np.nan, np.float32), 0, 2)
    assert math.isfinite(broken.value)


def test_after_sampling_orders_and_leaves_out_what_had_no_chance() -> None:
    ids, chances = np.array([7, 3, 9]), np.array([0.2, 0.8, 0.0], np.float32)
    ranked = after_sampling(ids, chances, 7, 5)
    assert ranked.value == pytest.approx(0.2)
    assert [id for id, _ in ranked.top] == [3, 7]
    assert after_sampling(ids, chances, 7, 1).top == ((3, pytest.approx(0.8)),)
    assert after_sampling(ids, chances, 4, 0) == (0.0, ())


def test_items_wait_for_the_whole_of_their_text() -> None:
    held: Held[str] = Held()
    held.push("a", 1)
    held.push("bc", 3)
    held.push("half of d", 4)
    held.push("other half of d", 4)
    assert held.release(2) == ("a",)
    assert held.release(3) == ("bc",)
    assert held.rest() == ("half of d", "other half of d")
    assert held.rest() == ()
