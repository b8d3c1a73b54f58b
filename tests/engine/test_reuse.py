"""Chunks that are moved: found in order, never the last token, and never for a request that is to be repeatable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.keeping import Keeping
from llamad.engine.prefix import chunks, common
from tests.engine.bench import Bench, assert_answers, request
from tests.engine.fake import FakeBackend

tokens = st.lists(st.integers(0, 3), max_size=60)


@given(held=tokens, prompt=tokens, n_min=st.integers(1, 5))
def test_chunks_are_what_the_prompt_goes_on_with(held: list[int], prompt: list[int], n_min: int) -> None:
    n_past = common(held, prompt)
    found = chunks(held, prompt, n_past, n_min)
    end = n_past
    for begin, count in found:
        assert count >= n_min
        assert begin >= end
        assert held[begin : begin + count] == prompt[n_past : n_past + count]
        n_past, end = n_past + count, begin + count


HEAD, GONE, TAIL = (
    "the beginning of it all, ",
    "a piece that goes away, ",
    "and what has been said since then. ",
)
WHOLE, SHORT = HEAD + GONE + TAIL, HEAD + TAIL + "and now?"


def bench(**keeping: int) -> Bench:
    return Bench(FakeBackend(n_slots=1), keeping=Keeping(**keeping))


def ask(bench: Bench, id: int, prompt: str, **fields: object) -> int:
    asked = request(id, prompt, 4, **fields)
    bench.submit(asked)
    bench.run()
    assert_answers(bench, [asked])
    return bench.finished(id).timings.cached_tokens


def test_what_is_behind_a_piece_that_went_away_is_moved() -> None:
    one = bench()
    ask(one, 1, WHOLE)
    assert ask(one, 2, SHORT, n_cache_reuse=16) >= len(HEAD) + len(TAIL) - 1


@pytest.mark.parametrize(("n_cache_reuse", "moves"), [(None, False), (0, False), (16, True), (500, False)])
def test_a_repeatable_request_must_ask_for_it(n_cache_reuse: int | None, moves: bool) -> None:
    one = bench(reuse_min=16)
    ask(one, 1, WHOLE)
    assert (ask(one, 2, SHORT, n_cache_reuse=n_cache_reuse) > len(HEAD)) is moves


def test_what_was_moved_is_no_exact_beginning_for_the_next() -> None:
    one = bench()
    ask(one, 1, WHOLE)
    ask(one, 2, SHORT, n_cache_reuse=16)
    assert ask(one, 3, SHORT + " yes") <= len(HEAD)


@pytest.mark.parametrize("why", ["cannot shift", "window", "recurrent", "shared"])
def test_what_cannot_be_moved_is_evaluated(why: str) -> None:
    fake = FakeBackend(n_slots=2)
    fake.can_shift = why != "cannot shift"
    fake.n_swa = 24 if why == "window" else 0
    fake.recurrent = why == "recurrent"
    one = Bench(fake)
    family = {"family": 1} if why == "shared" else {}
    ask(one, 1, WHOLE, **family)
    if why == "shared":
        one.submit(*[request(id, WHOLE, 4, family=10) for id in (10, 11)])
        one.run()
    assert ask(one, 2, SHORT, n_cache_reuse=16, id_slot=0) <= len(HEAD)
