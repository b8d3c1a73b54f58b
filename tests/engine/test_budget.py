"""The share of a step that prompts may take: by time, learnt from steps, and never nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.budget import N_MIN, N_UNKNOWN, Budget
from tests.engine.bench import Bench, assert_answers, request
from tests.engine.fake import FakeBackend


def taught(share: float, stream_s: float = 0.300, token_s: float = 0.002, n_step: int = 512) -> Budget:
    budget = Budget(share, n_step)
    for _ in range(3):
        budget.learn(token_s * 100, 100, 0)
        budget.learn(stream_s, 0, 4)
    return budget


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 150), (0.75, 450), (0.0, N_MIN), (0.1, N_MIN), (0.99, 512), (1.0, 512)]
)
def test_the_share_is_one_of_time(share: float, expected: int) -> None:
    assert taught(share).n_beside == pytest.approx(expected, abs=1)


def test_without_a_bound_nothing_is_asked() -> None:
    assert Budget(1.0, 2048).n_beside == 2048


def test_before_anything_is_known_a_count_stands_in() -> None:
    assert Budget(0.5, 512).n_beside == N_UNKNOWN
    assert Budget(0.5, 48).n_beside == 48


def test_what_streams_take_of_a_mixed_step_is_not_the_prompts() -> None:
    budget = taught(0.5, token_s=0.001)
    for _ in range(40):
        budget.learn(0.300 + 0.003 * 80, 80, 4)
    assert budget.n_beside == 100


def test_a_slower_machine_is_noticed() -> None:
    budget = taught(0.75)
    for _ in range(30):
        budget.learn(0.004 * 100, 100, 0)
    assert budget.n_beside == pytest.approx(225, abs=1)


@given(
    steps=st.lists(st.tuples(st.floats(0, 10), st.integers(0, 512), st.integers(0, 16)), max_size=50),
    share=st.floats(0, 1),
)
def test_it_is_always_a_number_of_tokens_that_fit(steps: list[tuple[float, int, int]], share: float) -> None:
    budget = Budget(share, 512)
    for step in steps:
        budget.learn(*step)
        assert 0 < budget.n_beside <= 512


def test_steps_with_streams_stay_short_while_a_long_prompt_is_evaluated() -> None:
    """On a machine where a token of a prompt takes 1 ms, and a step with streams 50 ms."""
    now = 0.0

    class Slow(FakeBackend):
        def decode(self, entries):  # type: ignore[no-untyped-def]
            nonlocal now
            now += 0.050 + 0.001 * sum(len(entry.tokens) for entry in entries if len(entry.tokens) > 1)
            return super().decode(entries)

    backend = Slow(n_slots=2, n_ctx=4096, n_step=512)
    bench = Bench(backend, clock=lambda: now, prefill_budget=0.75)
    stream, long = request(1, "a stream " * 20, 300), request(2, "x" * 2000, 3)
    bench.submit(stream)
    bench.turn(20)
    bench.submit(long)
    bench.turn(4)
    first = len(backend.batches)
    bench.run()
    mixed = [batch for batch in backend.batches[first:] if len(batch) > 1 and len(batch[-1].tokens) > 1]
    assert mixed
    assert max(sum(len(entry.tokens) for entry in batch) for batch in mixed) <= 152
    assert_answers(bench, [stream, long])
