"""Requests longer than the context: what is dropped, that answers go on from what is left, and that they say so."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from llamad.engine import shift
from tests.engine.bench import Bench, assert_answers, request
from tests.engine.fake import FakeBackend, answer, next_token


@given(
    n_ctx=st.integers(16, 4096),
    n_keep=st.integers(-1, 9999),
    n_prompt=st.integers(1, 99999),
    bos=st.booleans(),
)
def test_a_long_prompt_is_cut_to_less_than_the_context(
    n_ctx: int, n_keep: int, n_prompt: int, bos: bool
) -> None:
    assume(n_prompt >= n_ctx)
    kept = shift.keep(n_keep, n_prompt, n_ctx, bos)
    left = n_prompt - shift.overlong(n_prompt, kept, n_ctx)
    assert kept < left < n_ctx


@given(
    n_ctx=st.integers(16, 4096),
    n_keep=st.integers(-1, 9999),
    n_prompt=st.integers(1, 9999),
    n_discard=st.integers(0, 9999),
)
def test_a_shift_leaves_what_is_kept_and_at_least_the_last_token(
    n_ctx: int, n_keep: int, n_prompt: int, n_discard: int
) -> None:
    kept = shift.keep(n_keep, n_prompt, n_ctx, add_bos=True)
    count = shift.discard(n_ctx, kept, n_discard)
    assert 1 <= count < n_ctx - kept


@pytest.mark.parametrize(
    ("n_keep", "n_discard", "expected"),
    [(0, 0, (0, 50)), (20, 0, (20, 40)), (-1, 0, (30, 35)), (20, 7, (20, 7)), (0, 99999, (0, 99))],
)
def test_llama_servers_numbers(n_keep: int, n_discard: int, expected: tuple[int, int]) -> None:
    kept = shift.keep(n_keep, n_prompt=30, n_ctx=100, add_bos=False)
    assert (kept, shift.discard(100, kept, n_discard)) == expected


def shifted_answer(tokens: Sequence[int], count: int, n_ctx: int, kept: int) -> str:
    """What the toy model says where its memory is shifted."""
    memory, said = list(tokens), []
    for _ in range(count):
        if len(memory) >= n_ctx:
            del memory[kept : kept + shift.discard(len(memory), kept, 0)]
        said.append(next_token(memory))
        memory.append(said[-1])
    return bytes(said).decode()


@pytest.mark.parametrize("kept", [0, 5])
def test_an_answer_goes_on_beyond_the_context(kept: int) -> None:
    bench = Bench(FakeBackend(n_slots=1, n_ctx=32, shifts=True))
    bench.submit(request(1, "hello, you", 100, n_keep=kept))
    bench.run()
    last = bench.finished(1)
    assert (last.reason, last.truncated, last.timings.predicted_tokens) == ("length", True, 100)
    assert bench.text(1) == shifted_answer(b"hello, you", 100, 32, kept)


def test_without_a_limit_it_ends_at_the_length_of_the_training() -> None:
    bench = Bench(FakeBackend(n_slots=1, n_ctx=32, shifts=True))
    bench.submit(request(1, "hello", -1))
    bench.run()
    assert (bench.finished(1).reason, bench.finished(1).truncated) == ("length", True)
    assert bench.finished(1).timings.predicted_tokens == 27


def test_a_prompt_longer_than_the_context_loses_its_middle() -> None:
    bench = Bench(FakeBackend(n_slots=1, n_ctx=32, shifts=True))
    prompt = "0123" + "x" * 92 + "the end"
    bench.submit(request(1, prompt, 3, n_keep=4))
    bench.run()
    gone = shift.overlong(len(prompt), 4, 32)
    assert bench.text(1) == answer((prompt[:4] + prompt[4 + gone :]).encode(), 3)
    assert bench.finished(1).truncated
    assert bench.finished(1).timings.prompt_tokens == len(prompt) - gone


def test_even_then_a_prompt_has_a_bound() -> None:
    bench = Bench(FakeBackend(n_slots=1, n_ctx=32, shifts=True))
    bench.submit(request(1, "x" * 32 * 64))
    assert bench.failed(1).error.kind == "exceed-context-size"


def test_what_was_shifted_is_not_taken_for_what_it_looks_like() -> None:
    backend = FakeBackend(n_slots=1, n_ctx=32, shifts=True)
    bench = Bench(backend)
    bench.submit(request(1, "hello", 40, n_keep=5))
    bench.run()
    [slot] = bench.engine._pool.slots
    alike = bytes(slot.cached[:20]).decode()
    follower = request(2, alike, 4)
    bench.submit(follower)
    bench.run()
    assert bench.finished(2).timings.cached_tokens <= 5
    assert_answers(bench, [follower])


def test_a_neighbour_is_not_touched() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_ctx=64, shared=False, shifts=True))
    neighbour = request(2, "a neighbour", 12)
    bench.submit(request(1, "hello", 60), neighbour)
    bench.run()
    assert bench.text(1) == shifted_answer(b"hello", 60, 32, 0)
    assert_answers(bench, [neighbour])
    assert not bench.finished(2).truncated


def test_who_shares_the_beginning_keeps_it() -> None:
    """Shifting one of two sequences with common cells moves none of the other's."""
    bench = Bench(FakeBackend(n_slots=2, n_ctx=128, shifts=True))
    bench.submit(*[request(id, "all of a family", 200, family=1) for id in (1, 2)])
    bench.run()
    assert bench.text(1) == bench.text(2)
    assert {bench.finished(id).timings.predicted_tokens for id in (1, 2)} == {200}
