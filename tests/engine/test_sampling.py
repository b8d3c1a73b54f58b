"""Sampling before the C chain: nothing of the top k is lost, and penalties are llama.cpp's formula."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.sampling import Ids, Penalties, Row, Sampler, Stage, candidates, stages
from llamad.engine.vocabulary import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


class Recorder:
    """A chain that keeps what it is asked and picks the first candidate."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.ids: list[Ids | None] = []

    def make(self, stages: Sequence[Stage]) -> Recorder:
        self.stages = list(stages)
        return self

    def draw(self, row: Row, ids: Ids | None) -> int:
        self.ids.append(ids)
        return 0 if ids is None else int(ids[0])


def sampler(params: SamplingParams, history: Sequence[int] = (), forbidden: Sequence[int] = ()) -> Sampler:
    return Sampler(params, 1, Recorder().make, history=history, n_ctx=100, forbidden=forbidden)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(4000, 4200))
def test_candidates_hold_the_top_k(seed: int, k: int, n_vocab: int) -> None:
    row = np.random.default_rng(seed).normal(size=n_vocab).astype(np.float32)
    ids = candidates(row, k)
    assert ids is not None
    assert set(np.argsort(row)[-k:]) <= set(ids)
    assert list(ids) == sorted(ids)
    assert len(ids) < n_vocab / 2


def test_no_candidates_where_there_is_no_bound() -> None:
    row = np.zeros(4096, np.float32)
    assert candidates(row, 0) is None
    assert candidates(row, 65) is None
    assert candidates(np.full(4096, np.nan, np.float32), 10) is None


def test_candidates_with_most_of_the_vocabulary_forbidden() -> None:
    row = np.full(4096, -np.inf, np.float32)
    row[[5, 4000]] = 1.0
    ids = candidates(row, 10)
    assert ids is not None
    assert {5, 4000} <= set(ids)


def test_the_chain_has_only_the_stages_that_do_something() -> None:
    defaults = [stage.name for stage in stages(SamplingParams(), 1)]
    assert defaults == ["top_k", "top_p", "min_p", "temperature", "draw"]
    everything_off = SamplingParams(top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0)
    assert [stage.name for stage in stages(everything_off, 1)] == ["temperature", "draw"]
    assert stages(SamplingParams(typical_p=0.5), 7)[1] == Stage("typical", 0.5)
    assert stages(SamplingParams(), 0xFFFFFFFE)[-1] == Stage("draw", 0xFFFFFFFE)


def test_only_top_k_first_may_drop_candidates_beforehand() -> None:
    row = np.arange(4096, dtype=np.float32)
    for params, filtered in ((SamplingParams(), True), (SamplingParams(top_k=0), False)):
        recorder = Recorder()
        Sampler(params, 1, recorder.make, history=(), n_ctx=100).sample(row.copy())
        assert (recorder.ids[0] is not None) is filtered


def test_greedy_is_the_maximum_and_needs_no_chain() -> None:
    row = np.array([0.0, 3.0, 2.0], np.float32)
    assert sampler(GREEDY).sample(row) == 1


def test_bias_and_forbidden_tokens() -> None:
    row = np.array([0.0, 3.0, 2.0, 1.0], np.float32)
    assert sampler(GREEDY, forbidden=[1]).sample(row.copy()) == 2
    biased = SamplingParams(temperature=0.0, logit_bias=((3, 5.0), (1, float("-inf"))))
    assert sampler(biased).sample(row.copy()) == 3
    assert sampler(biased, forbidden=[3]).sample(row.copy()) == 2


@given(
    st.lists(st.integers(0, 9), max_size=30),
    st.lists(st.integers(0, 9), max_size=30),
    st.integers(-1, 12),
    st.floats(0.5, 2.0),
    st.floats(-1.0, 1.0),
    st.floats(-1.0, 1.0),
)
def test_penalties_follow_the_formula(
    prompt: list[int], generated: list[int], last_n: int, repeat: float, presence: float, frequency: float
) -> None:
    params = SamplingParams(
        repeat_last_n=last_n, repeat_penalty=repeat, presence_penalty=presence, frequency_penalty=frequency
    )
    penalties = Penalties(params, 100, prompt)
    for token in generated:
        penalties.accept(token)
    row = np.linspace(-2, 2, 10).astype(np.float32)
    expected = row.copy()
    history = prompt + generated
    window = history[-last_n:] if last_n > 0 else history if last_n < 0 else []
    for token, count in Counter(window).items():
        logit = float(expected[token])
        logit = logit * repeat if logit <= 0 else logit / repeat
        expected[token] = logit - count * frequency - presence
    if penalties.active:
        penalties.apply(row)
    np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)


def test_repetition_is_penalised_from_the_prompt_on() -> None:
    row = np.array([1.0, 3.0, 2.9], np.float32)
    params = SamplingParams(temperature=0.0, repeat_penalty=1.5)
    chooser = sampler(params, history=[1])
    assert chooser.sample(row.copy()) == 2
    chooser.accept(2)
    assert chooser.sample(row.copy()) == 1


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_typical_has_the_last_word_even_at_temperature_zero(temperature: float) -> None:
    recorder = Recorder()
    params = SamplingParams(temperature=temperature, typical_p=0.5)
    Sampler(params, 1, recorder.make, history=(), n_ctx=100).sample(np.zeros(4096, np.float32))
    assert [stage.name for stage in recorder.stages][-2:] == ["temperature", "draw"]
