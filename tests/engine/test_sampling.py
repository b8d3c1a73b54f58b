"""Sampling before the C chain: penalties are llama.cpp's formula, edits touch what they may, constraints have the last word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.narrow import Ids, Row
from llamad.engine.sampling import Penalties, Sampler
from llamad.engine.stages import Stage
from llamad.engine.vocabulary import SamplingParams, Wanted
from llamad.errors import LlamadError

GREEDY = SamplingParams(temperature=0.0)
NEVER = float("-inf")


class Recorder:
    """A chain that keeps what it is asked and picks the first candidate."""

    def __init__(self, stages: Sequence[Stage] = ()) -> None:
        self.stages = list(stages)
        self.ids: list[Ids | None] = []
        self.accepted: list[int] = []

    def draw(self, row: Row, ids: Ids | None) -> int:
        self.ids.append(ids)
        return 0 if ids is None else int(ids[0])

    def adjust(self, row: Row, ids: Ids) -> None:
        row[ids] -= 10.0

    def accept(self, token: int) -> None:
        self.accepted.append(token)

    def chances(self) -> tuple[Ids, Row]:
        return np.array([0, 1, 2]), np.array([0.25, 0.75, 0.0], np.float32)


class Made:
    """Hands out Recorders and remembers them."""

    def __init__(self) -> None:
        self.chains: list[Recorder] = []

    def __call__(self, stages: Sequence[Stage]) -> Recorder:
        self.chains.append(Recorder(stages))
        return self.chains[-1]


class Only:
    """Allows some tokens, once."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = tokens
        self.complete = False
        self.asked = 0

    def take(self, token: int) -> bool:
        self.complete = token in self.tokens
        return self.complete

    def allowed(self, row: Row, k: int) -> Ids:
        self.asked += 1
        return np.array(self.tokens, np.int64)


def sampler(params: SamplingParams, history: Sequence[int] = (), **options) -> Sampler:
    return Sampler(params, 1, Made(), history=history, n_ctx=100, **options)


def row_of(*logits: float) -> Row:
    return np.array(logits, np.float32)


def test_only_a_first_stage_that_truncates_drops_candidates_beforehand() -> None:
    row = np.arange(4096, dtype=np.float32)
    for params, filtered in (
        (SamplingParams(), True),
        (SamplingParams(top_k=0), False),
        (SamplingParams(top_k=0, top_p=1.0), True),
        (SamplingParams(top_k=0, top_p=1.0, min_keep=2), False),
        (SamplingParams(typical_p=0.9, samplers=("typ_p", "top_k")), False),
        (SamplingParams(mirostat=2), False),
    ):
        made = Made()
        Sampler(params, 1, made, history=(), n_ctx=100).sample(row.copy())
        assert (made.chains[0].ids[0] is not None) is filtered, params


def test_greedy_is_the_maximum_and_needs_no_chain() -> None:
    made = Made()
    assert Sampler(GREEDY, 1, made, history=(), n_ctx=9).sample(row_of(0.0, 3.0, 2.0)).token == 1
    assert made.chains == []


def test_bias_and_forbidden_tokens() -> None:
    row = row_of(0.0, 3.0, 2.0, 1.0)
    assert sampler(GREEDY, forbidden=[1]).sample(row.copy()).token == 2
    biased = SamplingParams(temperature=0.0, logit_bias=((3, 5.0), (1, NEVER)))
    assert sampler(biased).sample(row.copy()).token == 3
    assert sampler(biased, forbidden=[3]).sample(row.copy()).token == 2


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(), SamplingParams(top_k=0)], ids=str)
def test_nothing_that_may_be_chosen_is_an_error(params: SamplingParams) -> None:
    with pytest.raises(LlamadError, match="cannot choose a token: all are forbidden"):
        sampler(params, forbidden=range(4)).sample(row_of(0.0, 3.0, 2.0, 1.0))


def test_forbidden_tokens_do_not_reach_a_chain_over_the_whole_vocabulary() -> None:
    made = Made()
    params = SamplingParams(top_k=0, typical_p=0.5, logit_bias=((0, NEVER),))
    Sampler(params, 1, made, history=(), n_ctx=9).sample(row_of(5.0, 1.0, 2.0))
    ids = made.chains[0].ids[0]
    assert ids is not None
    assert list(ids) == [1, 2]


@given(
    st.lists(st.integers(0, 9), max_size=30),
    st.lists(st.integers(0, 9), max_size=30),
    st.integers(1, 12),
    st.floats(0.5, 2.0),
    st.floats(-1.0, 1.0),
    st.floats(-1.0, 1.0),
)
def test_penalties_follow_the_formula(
    prompt: list[int], generated: list[int], last_n: int, repeat: float, presence: float, frequency: float
) -> None:
    penalties = Penalties(Stage("penalties", (last_n, repeat, frequency, presence)), prompt)
    for token in generated:
        penalties.accept(token)
    row = np.linspace(-2, 2, 10).astype(np.float32)
    expected = row.copy()
    for token, count in Counter((prompt + generated)[-last_n:]).items():
        logit = float(expected[token])
        logit = logit * repeat if logit <= 0 else logit / repeat
        expected[token] = logit - count * frequency - presence
    penalties.apply(row)
    np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)


def test_repetition_is_penalised_from_the_prompt_on() -> None:
    row = row_of(1.0, 3.0, 2.9)
    params = SamplingParams(temperature=0.0, repeat_penalty=1.5)
    chooser = sampler(params, history=[1])
    assert chooser.sample(row.copy()).token == 2
    chooser.accept(2)
    assert chooser.sample(row.copy()).token == 1


def test_dry_sees_the_tokens_of_its_window_and_nothing_else() -> None:
    made = Made()
    params = SamplingParams(temperature=0.0, dry_multiplier=1.0, dry_penalty_last_n=3)
    chooser = Sampler(params, 1, made, history=[0, 1, 2, 1], n_ctx=100)
    (dry,) = made.chains
    assert dry.accepted == [1, 2, 1]
    row = row_of(1.0, 5.0, 4.0, 0.0)
    assert chooser.sample(row).token == 0
    assert list(row) == [1.0, -5.0, -6.0, 0.0]
    chooser.accept(3)
    assert dry.accepted == [1, 2, 1, 3]


def test_stages_that_remember_are_told_of_the_prompt_and_of_every_token() -> None:
    made = Made()
    params = SamplingParams(repeat_penalty=1.5, repeat_last_n=2, samplers=("top_k", "penalties"))
    chooser = Sampler(params, 1, made, history=[7, 8, 9], n_ctx=100)
    chooser.accept(5)
    assert made.chains[0].accepted == [8, 9, 5]


@pytest.mark.parametrize("params", [GREEDY, SamplingParams()], ids=["greedy", "drawn"])
def test_a_constraint_has_the_last_word(params: SamplingParams) -> None:
    constraint = Only(2)
    chooser = sampler(params, constraint=constraint)
    assert chooser.sample(row_of(0.0, 9.0, 1.0)).token == 2
    assert constraint.asked == 1
    assert chooser.complete


def test_a_token_that_is_allowed_costs_no_list_of_all_allowed() -> None:
    constraint = Only(1)
    assert sampler(GREEDY, constraint=constraint).sample(row_of(0.0, 9.0, 1.0)).token == 1
    assert constraint.asked == 0


def test_what_bias_forbids_and_rules_demand_is_an_error() -> None:
    for forbidden, constraint in (([2], Only(2)), ([], Only())):
        with pytest.raises(LlamadError) as caught:
            sampler(GREEDY, forbidden=forbidden, constraint=constraint).sample(row_of(0.0, 9.0, 1.0))
        assert caught.value.kind == "no-token"


def test_likelihoods_before_sampling_are_the_models_own() -> None:
    row = np.log(row_of(0.1, 0.6, 0.3))
    params = SamplingParams(temperature=0.0, logit_bias=((0, 100.0),))
    choice = sampler(params, wanted=Wanted(2)).sample(row)
    assert choice.token == 0
    assert choice.ranked is not None
    assert choice.ranked.value == pytest.approx(np.log(0.1), abs=1e-5)
    assert [id for id, _ in choice.ranked.top] == [1, 2]
    assert choice.ranked.top[0][1] == pytest.approx(np.log(0.6), abs=1e-5)


def test_likelihoods_after_sampling_are_what_was_drawn_from() -> None:
    drawn = sampler(SamplingParams(), wanted=Wanted(3, after_sampling=True)).sample(row_of(1.0, 2.0, 0.0))
    assert drawn.ranked == (0.25, ((1, 0.75), (0, 0.25)))
    greedy = sampler(GREEDY, wanted=Wanted(3, after_sampling=True)).sample(row_of(1.0, 2.0, 0.0))
    assert greedy.ranked == (1.0, ((1, 1.0),))
