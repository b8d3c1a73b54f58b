"""What was evaluated once is found again, and answers are those of a model that remembers nothing."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.engine import prefix
from llamad.engine.keeping import Keeping
from tests.engine.bench import Bench, assert_answers, request
from tests.engine.fake import FakeBackend

RAM = Keeping(ram_bytes=1 << 20, checkpoint_step=16)
A, B, C = (f"{name} conversation that goes on and on, with this and with that " * 2 for name in "ABC")


def backend(kind: str, n_slots: int = 1, n_ctx: int = 512, *, shared: bool = True) -> FakeBackend:
    fake = FakeBackend(n_slots, n_ctx, n_step=16, shared=shared)
    fake.n_swa = 24 if kind == "window" else 0
    fake.recurrent = kind == "recurrent"
    fake.copies_parts = shared and kind == "all"
    return fake


def ask(bench: Bench, id: int, prompt: str, max_tokens: int = 4, **fields: object) -> int:
    """The answer is right; how much of the prompt was not evaluated."""
    asked = request(id, prompt, max_tokens, **fields)
    bench.submit(asked)
    bench.run()
    assert_answers(bench, [asked])
    return bench.finished(id).timings.cached_tokens


@pytest.mark.parametrize("kind", ["all", "window", "recurrent"])
def test_a_conversation_that_lost_its_slot_comes_back(kind: str) -> None:
    bench = Bench(backend(kind), keeping=RAM)
    for id, prompt in enumerate((A, B, C)):
        assert ask(bench, id, prompt) == 0
    answers = [prompt + bench.text(id) for id, prompt in enumerate((A, B, C))]
    # The last token that was sampled is not in the memory.
    assert [ask(bench, 10 + at, text + "and?") for at, text in enumerate(answers)] == [
        len(text) - 1 for text in answers
    ]


@pytest.mark.parametrize("kind", ["window", "recurrent"])
def test_a_prompt_that_parts_goes_on_from_a_checkpoint(kind: str) -> None:
    bench = Bench(backend(kind), keeping=RAM)
    ask(bench, 1, A, 60)
    assert ask(bench, 2, A) == len(A) - 4, "the same again"
    with patch.object(prefix, "STRANGER_MIN", 16):
        half = A[: len(A) // 2]
        assert len(half) - 16 <= ask(bench, 3, half + "but no") <= len(half)
        assert ask(bench, 4, A + "yes") >= len(half) - 16


@pytest.mark.parametrize("kind", ["window", "recurrent"])
def test_checkpoints_go_with_what_is_kept(kind: str) -> None:
    bench = Bench(backend(kind), keeping=RAM)
    ask(bench, 1, A, 60)
    ask(bench, 2, B)
    assert ask(bench, 3, A) == len(A) - 4


@pytest.mark.parametrize("kind", ["window", "recurrent"])
def test_checkpoints_behind_a_parting_do_not_come_back(kind: str) -> None:
    bench = Bench(backend(kind), keeping=RAM)
    ask(bench, 1, A, 30)
    ask(bench, 2, B)
    with patch.object(prefix, "STRANGER_MIN", 16):
        other = A[: len(A) // 2] + "but then it was quite another one, and went elsewhere"
        assert ask(bench, 3, other, 30) > 0
        for length in (70, 85, 100):
            ask(bench, length, other[:length] + "?")


def test_no_more_checkpoints_than_allowed() -> None:
    bench = Bench(
        backend("recurrent"), keeping=Keeping(ram_bytes=1 << 20, checkpoint_step=1, n_checkpoints=2)
    )
    ask(bench, 1, A)
    [slot] = bench.engine._pool.slots
    assert [each.n_past for each in slot.checkpoints] == [112, len(A) - 4]


@pytest.mark.parametrize("idle_slots", [True, False])
def test_who_must_make_room_is_kept_if_that_is_wanted(idle_slots: bool) -> None:
    fake = backend("all", n_slots=3, n_ctx=200)
    bench = Bench(fake, keeping=Keeping(ram_bytes=1 << 20, idle_slots=idle_slots))
    ask(bench, 1, A)
    ask(bench, 2, B)
    assert (ask(bench, 3, A) > 0) is idle_slots


def test_without_room_nothing_is_kept() -> None:
    bench = Bench(backend("all"), keeping=Keeping(ram_bytes=100))
    for id, prompt in enumerate((A, B, A)):
        assert ask(bench, id, prompt) == 0
    assert bench.engine._pool._recall._host.used_bytes == 0


def test_a_request_that_wants_no_cache_gets_none() -> None:
    bench = Bench(backend("all"), keeping=RAM)
    ask(bench, 1, A)
    ask(bench, 2, B)
    assert ask(bench, 3, A, cache_prompt=False) == 0


def test_other_adapters_have_states_of_their_own() -> None:
    bench = Bench(backend("all"), keeping=RAM)
    ask(bench, 1, A)
    ask(bench, 2, B)
    bench.submit(request(3, A, 4, adapters=((0, 1.0),)))
    bench.run()
    assert bench.finished(3).timings.cached_tokens == 0


WORDS = st.sampled_from(["alpha beta ", "gamma ", "delta epsilon zeta ", "eta theta ", "iota kappa lambda "])
PROMPTS = st.lists(WORDS, min_size=1, max_size=9).map("".join)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["all", "window", "recurrent"]),
    rounds=st.lists(
        st.lists(st.tuples(PROMPTS, st.booleans()), min_size=1, max_size=4), min_size=1, max_size=6
    ),
    n_slots=st.integers(1, 3),
    n_ctx=st.integers(200, 420),
    shared=st.booleans(),
    ram=st.sampled_from([0, 900, 3000, 1 << 20]),
    step=st.sampled_from([0, 8, 64]),
    ahead=st.integers(0, 6),
)
def test_answers_are_right_whatever_was_before(
    kind: str,
    rounds: list[list[tuple[str, bool]]],
    n_slots: int,
    n_ctx: int,
    shared: bool,
    ram: int,
    step: int,
    ahead: int,
) -> None:
    fake = backend(kind, n_slots, n_ctx if shared else n_ctx * n_slots, shared=shared)
    bench = Bench(fake, keeping=Keeping(ram_bytes=ram, checkpoint_step=step))
    number = 0
    for wave in rounds:
        requests = []
        for prompt, family in wave:
            number += 1
            first = number if family else 0
            requests.append(request(number, prompt, 6, family=first))
            if family:
                number += 1
                requests.append(request(number, prompt, 6, family=first))
        with patch.object(prefix, "STRANGER_MIN", 8), patch.object(prefix, "LOAN_MIN", 8):
            bench.submit(*requests)
            bench.turn(ahead)
            bench.run()
        assert_answers(bench, requests)
        assert bench.engine._pool._recall._host.used_bytes <= ram
