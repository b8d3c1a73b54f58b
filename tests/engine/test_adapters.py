"""Requests with different adapters: neither batch nor prefix in common, and nobody waits for another's set."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.engine.adapters import apart, by_default, in_force
from llamad.engine.vocabulary import AdapterFacts, Adapters, GenerateRequest
from tests.engine.bench import Bench, request
from tests.engine.fake import FakeBackend, answer

A: Adapters = ((0, 1.0),)
B: Adapters = ((1, 0.5),)
SETS: tuple[Adapters, ...] = ((), A, B, ((0, 0.3), (2, -1.0)))


def assert_answers(bench: Bench, requests: list[GenerateRequest]) -> None:
    for item in requests:
        expected = answer(item.tokens, item.max_tokens, adapters=item.adapters or ())
        assert bench.text(item.id) == expected, item


def test_what_has_the_same_effect_is_the_same_set() -> None:
    assert in_force([(2, 1.0), (0, 0.5), (1, 0.0)]) == in_force([(0, 0.5), (2, 1.0)]) == ((0, 0.5), (2, 1.0))
    assert by_default([AdapterFacts("a", 0.0), AdapterFacts("b", 2.0)]) == ((1, 2.0),)


def test_the_set_that_is_in_force_comes_first() -> None:
    sets = {1: A, 2: (), 3: A, 4: B}
    assert apart(sets, sets.__getitem__, B) == [[4], [1, 3], [2]]
    assert apart(sets, sets.__getitem__, ((2, 1.0),)) == [[1, 3], [2], [4]]
    assert apart([], sets.__getitem__, A) == []


def test_no_batch_has_two_sets_and_every_set_goes_on_in_every_turn() -> None:
    bench = Bench(FakeBackend(n_slots=4))
    requests = [request(id, f"prompt {id}", 20, adapters=SETS[id % 2]) for id in range(4)]
    bench.submit(*requests)
    bench.turn(4)
    before = [view.predicted_tokens for view in bench.engine.slots()]
    bench.turn(5)
    assert [view.predicted_tokens for view in bench.engine.slots()] == [count + 5 for count in before]
    bench.run()
    assert_answers(bench, requests)
    assert bench.engine.stats().generating_max == 2
    # Two sets cost one change a turn, not two.
    assert bench.backend.changes_of_adapters <= len(bench.backend.batches) / 2 + 1


def test_a_long_prompt_of_one_set_does_not_stop_the_streams_of_another() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_ctx=2048, n_step=64))
    bench.submit(request(1, "short", 40, adapters=A))
    bench.turn(3)
    bench.submit(request(2, "x" * 1000, 3, adapters=B))
    before = bench.engine.slots()[0].predicted_tokens
    bench.turn(8)
    assert bench.engine.slots()[0].predicted_tokens == before + 8
    longest = max(len(entry.tokens) for batch in bench.backend.batches for entry in batch)
    assert longest < 64
    bench.run()
    assert bench.text(2) == answer(b"x" * 1000, 3, adapters=B)


def test_a_prefix_is_taken_from_the_same_set_only() -> None:
    bench = Bench(FakeBackend(n_slots=2))
    bench.submit(request(1, "one and the same", 4, adapters=A))
    bench.run()
    for id, adapters, n_cached in ((2, A, 15), (3, (), 0), (4, A, 15), (5, B, 0), (6, (), 0)):
        bench.submit(request(id, "one and the same", 4, adapters=adapters))
        bench.run()
        assert bench.text(id) == answer(b"one and the same", 4, adapters=adapters)
        assert bench.finished(id).timings.cached_tokens == n_cached, id


def test_an_adapter_that_there_is_none_of() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", adapters=((3, 1.0),)))
    error = bench.failed(1).error
    assert (error.status, error.details) == (400, {"param": "lora"})
    assert error.message == "cannot use adapter 3: this model has 3, counted from 0"


@settings(deadline=None)
@given(
    work=st.lists(
        st.tuples(st.sampled_from(SETS), st.text("ab", min_size=1, max_size=60), st.integers(1, 30)),
        min_size=1,
        max_size=12,
    ),
    n_ctx=st.integers(100, 300),
    n_step=st.sampled_from([8, 32]),
)
def test_whatever_comes_together_everybody_gets_their_own_answer(
    work: list[tuple[Adapters, str, int]], n_ctx: int, n_step: int
) -> None:
    bench = Bench(FakeBackend(n_slots=3, n_ctx=n_ctx, n_step=n_step))
    requests = [
        request(id, prompt, count, adapters=adapters) for id, (adapters, prompt, count) in enumerate(work)
    ]
    bench.submit(*requests)
    bench.run()
    assert_answers(bench, requests)


@pytest.mark.parametrize("cancelled", range(3))
def test_who_leaves_takes_nobody_along(cancelled: int) -> None:
    bench = Bench(FakeBackend(n_slots=3))
    requests = [request(id, f"number {id}", 15, adapters=SETS[id]) for id in range(3)]
    bench.submit(*requests)
    bench.turn(5)
    bench.engine.cancel(cancelled)
    bench.run()
    assert_answers(bench, [item for item in requests if item.id != cancelled])
