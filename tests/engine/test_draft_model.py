"""A draft model on the toy backend: its memory follows the sequences, whatever becomes of its drafts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.engine.backend import Outcome
from llamad.engine.draft_model import CATCH_UP_MAX, CATCH_UP_MIN, DraftModel
from llamad.engine.drafting import DraftModelSettings, Wish
from tests.engine.bench import Bench, assert_answers, request
from tests.engine.fake import N_VOCAB, FakeBackend, next_token


def going_on(tokens: list[int], count: int) -> list[int]:
    longer = list(tokens)
    for _ in range(count):
        longer.append(next_token(longer))
    return longer[len(tokens) :]


def drafter(backend: FakeBackend | None = None, n_vocab: int = N_VOCAB, **fields: float) -> DraftModel:
    large = replace(FakeBackend().facts, n_vocab=n_vocab, size_bytes=10)
    return DraftModel(backend or FakeBackend(n_slots=2, n_ctx=2000), DraftModelSettings("x", **fields), large)


def test_it_drafts_what_it_would_say() -> None:
    model, tokens = drafter(n_max=4), [1, 2, 3]
    assert model.draft([Wish(0, 1, tokens, 9)]) == [going_on(tokens, 4)]
    assert model.draft([Wish(0, 1, tokens, 2)]) == [going_on(tokens, 2)]


def test_only_what_is_new_is_evaluated() -> None:
    backend = FakeBackend(n_slots=2, n_ctx=2000)
    model, tokens = drafter(backend, n_max=3), list(range(50))
    model.draft([Wish(0, 1, tokens, 3)])
    backend.batches.clear()
    right = going_on(tokens, 4)
    tokens += right
    model.draft([Wish(0, 1, tokens, 3)])
    evaluated = [token for batch in backend.batches for entry in batch for token in entry.tokens]
    # Of the draft the last token was not evaluated; then come the one behind it, and the new draft.
    assert evaluated[:2] == right[2:]
    assert len(evaluated) == 4
    backend.batches.clear()
    tokens += [200, 201]
    assert model.draft([Wish(0, 1, tokens, 3)]) == [going_on(tokens, 3)]
    assert sum(len(entry.tokens) for batch in backend.batches for entry in batch) == 4


def test_slots_share_decode_calls() -> None:
    backend = FakeBackend(n_slots=2, n_ctx=2000)
    model, one, two = drafter(backend, n_max=3), [1, 2, 3], [9, 8, 7, 6]
    drafts = model.draft([Wish(0, 1, one, 3), Wish(1, 2, two, 2)])
    assert drafts == [going_on(one, 3), going_on(two, 2)]
    assert [len(batch) for batch in backend.batches] == [2, 2, 2, 1]


def test_a_long_prompt_is_followed_in_parts_before_it_drafts() -> None:
    backend = FakeBackend(n_slots=2, n_ctx=4000, n_step=512)
    model, tokens = drafter(backend, n_max=2), [7] * (2 * CATCH_UP_MAX + 10)
    for _ in range(2):
        assert model.draft([Wish(0, 1, tokens, 0)]) == [[]]
        assert sum(len(entry.tokens) for entry in backend.batches[-1]) == CATCH_UP_MAX
    assert model.draft([Wish(0, 1, tokens, 2)]) == [going_on(tokens, 2)]


def test_it_ends_before_what_it_thinks_unlikely_and_drops_what_is_too_short() -> None:
    tokens = [1, 2, 3]
    # The toy model's likeliest token is e**10 times as likely as the others.
    assert drafter(p_min=0.9, n_max=3).draft([Wish(0, 1, tokens, 3)]) == [going_on(tokens, 3)]
    assert drafter(p_min=1.0, n_max=3).draft([Wish(0, 1, tokens, 3)]) == [[]]
    assert drafter(p_min=1.0, n_max=3).draft([Wish(0, 1, tokens, 3, p_min=0.5)]) == [going_on(tokens, 3)]
    assert drafter(n_min=3, n_max=3).draft([Wish(0, 1, tokens, 2)]) == [[]]
    assert drafter(n_min=3, n_max=3).draft([Wish(0, 1, tokens, 2, n_min=1)]) == [going_on(tokens, 2)]


def test_tokens_that_only_one_of_them_has() -> None:
    assert drafter(n_vocab=ord("a")).draft([Wish(0, 1, [1, 2], 3)]) == [[]]
    assert drafter(n_vocab=N_VOCAB + 9).draft([Wish(0, 2, [1, N_VOCAB + 1, 2], 3)]) == [[]]
    assert drafter(n_vocab=N_VOCAB + 9).draft([Wish(0, 3, [1, 2], 1)]) == [going_on([1, 2], 1)]


def test_where_its_memory_is_full_others_are_forgotten_and_then_it_goes_without() -> None:
    backend = FakeBackend(n_slots=2, n_ctx=40)
    model, one, two = drafter(backend, n_max=2), [1] * 25, [2] * 25
    assert model.draft([Wish(0, 1, one, 2)])[0]
    assert model.draft([Wish(1, 2, two, 2)])[0]
    assert backend.memory[0] == []
    assert model.draft([Wish(0, 1, one, 2), Wish(1, 2, two, 2)])[1], (
        "who is ready drafts beside who does not fit"
    )
    assert model.draft([Wish(0, 1, [3] * 39, 2)]) == [[]]


@pytest.mark.parametrize("outcome", [Outcome.BROKEN, Outcome.INVALID])
def test_what_fails_is_begun_anew(outcome: Outcome) -> None:
    backend = FakeBackend(n_slots=2)
    model, tokens = drafter(backend, n_max=3), [1, 2, 3]
    backend.forced.append(outcome)
    assert model.draft([Wish(0, 1, tokens, 3)]) == [[]]
    assert model.draft([Wish(0, 1, tokens, 3)]) == [going_on(tokens, 3)]


def test_a_window_that_has_moved_on_is_begun_anew() -> None:
    backend = FakeBackend(n_slots=1)
    backend.n_swa = 4
    model, tokens = drafter(backend, n_max=3), list(range(20))
    model.draft([Wish(0, 1, tokens, 3)])
    other = [*tokens[:10], 99, 98]
    assert model.draft([Wish(0, 2, other, 3)]) == [going_on(other, 3)]


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 25))
def test_its_memory_is_always_the_beginning_of_the_sequence(seed: int, rounds: int) -> None:
    """Drafts come true in part, requests come and go, and tokens are taken out of the middle."""
    chance = random.Random(seed)
    backend = FakeBackend(n_slots=2, n_ctx=600)
    model = drafter(backend, n_max=4)
    tasks = {slot: (slot, [chance.randrange(200) for _ in range(5)]) for slot in range(2)}
    n_shifts = 0
    for number in range(10, 10 + rounds):
        for slot, (task, tokens) in tasks.items():
            match chance.randrange(6):
                case 0:
                    tasks[slot] = number * 10 + slot, [*tokens[: chance.randrange(1, len(tokens) + 1)], 3]
                case 1 if len(tokens) > 12:
                    del tokens[3:5]
                    tokens += going_on(tokens, 2)
                    n_shifts += 1
                case 2:
                    tokens += [chance.randrange(200)]
                case _:
                    tokens += going_on(tokens, chance.randrange(1, 4))
            assert task >= 0
        wishes = [Wish(slot, task, tokens, 4, n_shifts=n_shifts) for slot, (task, tokens) in tasks.items()]
        assert model.draft(wishes) == [going_on(list(each.tokens), 4) for each in wishes]


def test_the_whole_way_with_an_engine() -> None:
    small = FakeBackend(n_slots=3, n_ctx=400)
    # Right three times out of four.
    small.successor = lambda tokens: next_token(tokens) if len(tokens) % 4 else 1
    large = FakeBackend(n_slots=3, n_ctx=400)
    large.drafters, large.n_drafted = [drafter(small, n_max=5)], 15
    bench = Bench(large)
    requests = [request(id, f"prompt number {id}", 30) for id in range(7)]
    bench.submit(*requests)
    bench.run()
    assert_answers(bench, requests)
    stats = bench.engine.stats()
    assert stats.accepted_tokens > 60
    assert stats.steps < 60


def test_while_nobody_wants_a_draft_it_waits_for_tokens_to_come_together() -> None:
    backend = FakeBackend(n_slots=1, n_ctx=400)
    model, tokens = drafter(backend, n_max=2), [1, 2, 3]
    assert model.cost == 0.1
    for token in range(2 * CATCH_UP_MIN):
        tokens.append(token)
        assert model.draft([Wish(0, 1, tokens, 0)]) == [[]]
    assert [sum(len(entry.tokens) for entry in batch) for batch in backend.batches] == [CATCH_UP_MIN] * 2
    assert model.draft([Wish(0, 1, tokens, 2)]) == [going_on(tokens, 2)]


@pytest.mark.parametrize(("shared", "evaluated"), [(True, [2, 3]), (False, [202, 153])])
def test_what_another_slot_has_is_not_evaluated_again(shared: bool, evaluated: list[int]) -> None:
    """Parts of a sequence can be shared only where all sequences are in one place."""
    backend = FakeBackend(n_slots=3, n_ctx=1200, n_step=512, shared=shared)
    model, prompt = drafter(backend, n_max=2), [number % 97 for number in range(200)]
    model.draft([Wish(0, 1, prompt, 2)])
    for slot, tokens in ((1, [*prompt, 5]), (2, [*prompt[:150], 7, 8])):
        backend.batches.clear()
        assert model.draft([Wish(slot, slot + 1, tokens, 2)]) == [going_on(tokens, 2)]
        assert sum(len(entry.tokens) for batch in backend.batches for entry in batch) == evaluated[slot - 1]
    assert model.draft([Wish(0, 4, few := [*prompt[:20], 9], 2)]) == [going_on(few, 2)]
