"""Several answers to one prompt, and prompts that begin like another slot's: what is in the memory is evaluated once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.engine.backend import Outcome
from llamad.engine.vocabulary import GenerateRequest, SamplingParams
from tests.engine.bench import Bench, assert_answers, request
from tests.engine.fake import FakeBackend, answer

PROMPT = "a prompt that all of a family have"


def family(n: int, prompt: str = PROMPT, max_tokens: int = 6, first: int = 1) -> list[GenerateRequest]:
    return [request(id, prompt, max_tokens, family=first) for id in range(first, first + n)]


def evaluated(bench: Bench) -> int:
    """Tokens that were evaluated as parts of prompts."""
    return bench.engine.stats().prompt_tokens


@pytest.mark.parametrize("shared", [True, False], ids=["one memory", "a memory each"])
def test_a_prompt_is_evaluated_once_for_all_its_answers(shared: bool) -> None:
    bench = Bench(FakeBackend(n_slots=4, n_step=16, shared=shared))
    requests = family(4)
    bench.submit(*requests)
    bench.turn(1)
    states = [slot.state for slot in bench.engine.slots()]
    assert states == ["processing_prompt", "wait_other", "wait_other", "wait_other"]
    bench.run()
    assert_answers(bench, requests)
    assert evaluated(bench) == len(PROMPT)
    assert [bench.finished(id).timings.cached_tokens for id in (1, 2, 3, 4)] == [0, *[len(PROMPT)] * 3]
    assert [bench.finished(id).timings.shared for id in (1, 2, 3, 4)] == [False, True, True, True]
    assert bench.engine.stats().generating_max == 4


def test_a_family_larger_than_the_slots_waits_in_line() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_step=16))
    requests = family(7)
    bench.submit(*requests)
    bench.run()
    assert_answers(bench, requests)
    # Who comes late evaluates the last token for its logits.
    assert evaluated(bench) <= len(PROMPT) + 5


def test_the_members_of_a_family_draw_by_their_own_seeds() -> None:
    def texts(backend: FakeBackend, size: int) -> list[str]:
        bench = Bench(backend)
        seeds = [SamplingParams(seed=40 + place, temperature=1.0) for place in range(size)]
        bench.submit(
            *[request(1 + at, PROMPT, 12, family=1, sampling=each) for at, each in enumerate(seeds)],
        )
        bench.run()
        return [bench.text(1 + at) for at in range(size)]

    together = texts(FakeBackend(n_slots=4), 3)
    assert len(set(together)) == 3
    assert texts(FakeBackend(n_slots=1), 3) == together
    assert texts(FakeBackend(n_slots=4), 1) == together[:1]


@pytest.mark.parametrize("leaves", [1, 2, 4])
@pytest.mark.parametrize("turns", range(6))
def test_a_family_goes_on_without_who_leaves(leaves: int, turns: int) -> None:
    bench = Bench(FakeBackend(n_slots=4, n_step=8))
    requests = family(4)
    bench.submit(*requests)
    bench.turn(turns)
    bench.engine.cancel(leaves)
    bench.run()
    assert_answers(bench, [each for each in requests if each.id != leaves])


def test_a_prompt_that_cannot_be_evaluated_fails_for_each_of_the_family() -> None:
    backend = FakeBackend(n_slots=3)
    backend.refuse_token = ord("!")
    bench = Bench(backend)
    bench.submit(*family(3, "no!"), request(9, "other", 3))
    bench.run()
    assert {bench.failed(id).error.kind for id in (1, 2, 3)} == {"decode-failed"}
    assert bench.text(9) == answer(b"other", 3)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    n_slots=st.integers(1, 4),
    n_ctx=st.integers(48, 96),
    shared=st.booleans(),
    outcomes=st.lists(st.sampled_from([Outcome.DONE, Outcome.ABORTED]), max_size=20),
)
def test_families_are_answered_whatever_happens(
    sizes: list[int], n_slots: int, n_ctx: int, shared: bool, outcomes: list[Outcome]
) -> None:
    backend = FakeBackend(n_slots, n_ctx * (1 if shared else n_slots), n_step=8, shared=shared)
    backend.forced.extend(outcomes)
    bench = Bench(backend)
    requests = [
        member
        for at, size in enumerate(sizes)
        for member in family(size, f"prompt of family {at % 2}", 5, first=1 + 10 * at)
    ]
    bench.submit(*requests)
    bench.run()
    assert_answers(bench, requests)


# ---- what another slot has


SYSTEM = "you are a helpful assistant, and this is the prompt that everybody's conversation begins with. " * 3


def test_a_long_beginning_of_another_slot_is_shared() -> None:
    backend = FakeBackend(n_slots=3, n_ctx=2048)
    bench = Bench(backend)
    bench.submit(request(1, SYSTEM + "hello", 40))
    bench.turn(8)
    busy = request(2, SYSTEM + "who are you", 4)
    bench.submit(busy)
    bench.run()
    assert bench.finished(2).timings.cached_tokens == len(SYSTEM)
    assert bench.finished(2).slot != bench.finished(1).slot
    assert_answers(bench, [busy])
    assert backend.n_cells < 2 * len(SYSTEM)


def test_a_short_beginning_of_a_stranger_is_not() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_ctx=2048))
    bench.submit(request(1, "x" * 100 + "hello" * 8, 4))
    bench.run()
    bench.submit(request(2, "x" * 100 + "others", 4))
    bench.run()
    assert bench.finished(2).timings.cached_tokens == 0


def test_where_parts_cannot_be_shared_the_prompt_is_evaluated() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_ctx=4096, shared=False))
    requests = [request(1, SYSTEM + "hello", 40), request(2, SYSTEM + "who are you", 4)]
    bench.submit(requests[0])
    bench.turn(8)
    bench.submit(requests[1])
    bench.run()
    assert_answers(bench, requests)
    assert bench.finished(2).timings.cached_tokens == 0


def test_what_is_shared_outlives_its_first_owner() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_ctx=2048))
    requests = [request(1, SYSTEM + "a", 4), request(2, SYSTEM + "b", 4), request(3, "fresh", 4)]
    for each in requests:
        bench.submit(each)
        bench.run()
    again = request(4, SYSTEM + "b", 4)
    bench.submit(again)
    bench.run()
    assert_answers(bench, [*requests, again])
