"""Speculation on a toy model: whoever drafts whatever, the answers are the same token by token."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.engine.backend import Outcome
from llamad.engine.drafting import DRAFTED_MAX, DraftModelSettings, SpeculationSettings, Wish
from llamad.engine.plan import Need, Share, plan, without_drafts
from llamad.engine.slot import State
from llamad.engine.speculation import COST_CPU, COST_GPU, PAUSE_MAX, START, Pace, Speculation
from llamad.engine.vocabulary import (
    Failed,
    Finished,
    GenerateRequest,
    Rules,
    SamplingParams,
    Speculative,
    Text,
    Wanted,
)
from tests.conftest import wait_until
from tests.engine.bench import GREEDY, Bench, request
from tests.engine.fake import EOG, FakeBackend, adapted, answer, next_token


class Oracle:
    """Drafts what the toy model will say, each token wrong with a probability of its own."""

    cost = 0.0

    def __init__(self, right: float = 1.0, length: int = 8, seed: int = 1) -> None:
        self.right, self.length = right, length
        self.random = random.Random(seed)
        self.judged: list[tuple[int, int, int]] = []
        self.asked: list[Wish] = []

    def draft(self, wishes: Sequence[Wish]) -> list[list[int]]:
        # The tokens of a wish are the request's own, and go on growing.
        self.asked += [replace(wish, tokens=tuple(wish.tokens)) for wish in wishes]
        return [self._draft(wish) for wish in wishes]

    def judge(self, task: int, n_drafted: int, n_accepted: int) -> None:
        self.judged.append((task, n_drafted, n_accepted))

    def _draft(self, wish: Wish) -> list[int]:
        tokens = list(wish.tokens)
        for _ in range(min(self.length, wish.n_max)):
            right = self.random.random() < self.right
            tokens.append(next_token(tokens) if right else self.random.randrange(0, 257))
        return tokens[len(wish.tokens) :]


class Prophet(Oracle):
    """Drafts what was said in another run, each token wrong with a probability of its own."""

    def __init__(self, said: dict[int, list[int]], right: float, length: int, seed: int) -> None:
        super().__init__(right, length, seed)
        self.said = said

    def _draft(self, wish: Wish) -> list[int]:
        said, last = self.said[wish.task], list(wish.tokens[-5:])
        ends = [end for end in range(len(last), len(said)) if said[end - len(last) : end] == last]
        coming = said[ends[-1] :][: min(self.length, wish.n_max)] if ends else []
        return [
            token if self.random.random() < self.right else self.random.randrange(0, 257) for token in coming
        ]


def backend(*drafters: Any, n_drafted: int = 24, **options: Any) -> FakeBackend:
    fake = FakeBackend(**options)
    fake.drafters, fake.n_drafted = drafters, n_drafted
    return fake


def ids_of(bench: Bench, id: int) -> list[int]:
    """All tokens of an answer."""
    outputs = [output for output in bench.outputs if output.id == id]
    return [token for output in outputs if isinstance(output, Text | Finished) for token in output.ids]


def told(bench: Bench, id: int) -> tuple[Any, ...]:
    """All that a client learns of an answer but its times, and how its text was cut."""
    texts = [output for output in bench.outputs if isinstance(output, Text) and output.id == id]
    end = bench.last(id)
    if isinstance(end, Failed):
        return bench.text(id), end.error.kind
    ids = ids_of(bench, id)
    likelihoods = [each for text in texts for each in text.likelihoods]
    return bench.text(id), ids, likelihoods, end.reason, end.stop_word, end.timings.predicted_tokens


def test_what_comes_true_comes_in_fewer_steps() -> None:
    oracle = Oracle()
    bench = Bench(backend(oracle))
    bench.submit(request(1, "hello", 40))
    bench.run()
    assert bench.text(1) == answer(b"hello", 40)
    timings = bench.finished(1).timings
    assert timings.accepted_tokens == timings.drafted_tokens
    stats = bench.engine.stats()
    assert stats.steps < 12
    assert (stats.drafted_tokens, stats.accepted_tokens) == (timings.drafted_tokens, timings.accepted_tokens)
    assert stats.drafts == len(oracle.judged)
    assert stats.predicted_tokens == 40


def test_what_is_wrong_is_taken_back() -> None:
    bench = Bench(backend(Oracle(right=0.0)))
    bench.submit(request(1, "hello", 30))
    bench.turn(10)
    slot = next(slot for slot in bench.engine.slots() if slot.request)
    assert len(bench.backend.memory[slot.id]) == 5 + slot.predicted_tokens - 1
    bench.run()
    assert bench.text(1) == answer(b"hello", 30)
    assert bench.finished(1).timings.accepted_tokens == 0


def test_a_draft_for_nobody_costs_nothing() -> None:
    bench = Bench(backend(Oracle(length=0)))
    bench.submit(request(1, "hello", 5))
    bench.run()
    assert bench.finished(1).timings.drafted_tokens == 0
    assert bench.engine.stats().drafts == 0


SAMPLINGS = [
    GREEDY,
    SamplingParams(seed=7),
    SamplingParams(seed=3, repeat_penalty=1.3, repeat_last_n=8, presence_penalty=0.5),
    SamplingParams(temperature=0.0, dry_multiplier=0.8, logit_bias=((ord("a"), 3.0),)),
    SamplingParams(seed=9, ignore_eos=True),
]
SCHEMA = '{"type": "object", "properties": {"a": {"type": "string", "maxLength": 30}}, "required": ["a"]}'
KINDS: list[dict[str, Any]] = [
    {},
    {"wanted": Wanted(2)},
    {"wanted": Wanted(1, after_sampling=True)},
    {"stop": ("a", "bc")},
    {"stop": (answer(b"same for all", 12)[7:10],)},
    {"rules": Rules("json_schema", SCHEMA)},
    {"rules": Rules("gbnf", 'root ::= [a-m]* "n" [a-z]{3,9}')},
    {"adapters": ((0, 1.0),)},
]


@st.composite
def requests_of_all_kinds(draw: st.DrawFn) -> list[GenerateRequest]:
    return [
        request(
            id,
            draw(st.sampled_from(["same for all", "x", "abcabcabcabcabc", "z" * 40])),
            draw(st.integers(1, 60)),
            sampling=draw(st.sampled_from(SAMPLINGS)),
            **draw(st.sampled_from(KINDS)),
        )
        for id in range(draw(st.integers(1, 6)))
    ]


@settings(deadline=None, max_examples=60)
@given(
    work=requests_of_all_kinds(),
    right=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    length=st.integers(1, 20),
    seed=st.integers(0, 1000),
    n_drafted=st.integers(1, 40),
    n_ctx=st.sampled_from([64, 400]),
    n_step=st.sampled_from([8, 64]),
    ends_at=st.sampled_from([0, 30]),
    shifts=st.booleans(),
)
def test_whatever_is_drafted_every_answer_is_the_same(
    work: list[GenerateRequest],
    right: float,
    length: int,
    seed: int,
    n_drafted: int,
    n_ctx: int,
    n_step: int,
    ends_at: int,
    shifts: bool,
) -> None:
    def successor(tokens: Sequence[int]) -> int:
        return EOG if len(tokens) == ends_at else next_token(tokens)

    sizes: dict[str, Any] = {"n_slots": 3, "n_ctx": n_ctx, "n_step": n_step, "shifts": shifts}
    plain = Bench(FakeBackend(**sizes))
    plain.backend.successor = successor
    run_on_a_thread(plain, work)
    said = {item.id: [*item.tokens, *ids_of(plain, item.id)] for item in work}
    oracle = Prophet(said, right, length, seed)
    fast = Bench(backend(oracle, n_drafted=min(n_drafted, n_step - 3), **sizes))
    fast.backend.successor = successor
    run_on_a_thread(fast, work)
    for item in work:
        assert told(fast, item.id) == told(plain, item.id)


def run_on_a_thread(bench: Bench, work: list[GenerateRequest]) -> None:
    """Some requests are prepared beside the engine's thread."""
    thread = threading.Thread(target=bench.engine.run)
    thread.start()
    try:
        bench.submit(*work)
        wait_until(lambda: len(bench.answered()) == len(work), within_s=60)
    finally:
        bench.engine.stop()
        thread.join(30)


@pytest.mark.parametrize("outcome", [Outcome.FULL, Outcome.INVALID])
def test_where_a_draft_does_not_fit_the_step_is_done_without(outcome: Outcome) -> None:
    fake = backend(Oracle(), n_slots=2)
    bench = Bench(fake)
    bench.submit(request(1, "hello", 20), request(2, "hello you", 20))
    bench.turn(3)
    fake.forced.append(outcome)
    bench.turn(1)
    assert all(entry.logits == 1 for entry in fake.batches[-1])
    bench.run()
    assert bench.text(1) == answer(b"hello", 20)
    assert bench.text(2) == answer(b"hello you", 20)


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.BROKEN])
def test_what_ends_a_decode_call_with_drafts(outcome: Outcome) -> None:
    fake = backend(Oracle())
    bench = Bench(fake)
    bench.submit(request(1, "hello", 20))
    bench.turn(3)
    fake.forced.append(outcome)
    bench.turn(1)
    bench.submit(request(2, "hello", 20))
    bench.run()
    assert bench.text(2) == answer(b"hello", 20)
    if outcome is Outcome.ABORTED:
        assert bench.text(1) == answer(b"hello", 20)
    else:
        assert bench.failed(1).error.kind == "decode-failed"


def test_memory_that_cannot_take_back_is_evaluated_again() -> None:
    fake = backend(Oracle(right=0.0))
    trim, refusals = fake.trim, [True]

    def stubborn(sequence: int, n_past: int) -> bool:
        return False if refusals.pop() else trim(sequence, n_past)

    bench = Bench(fake)
    bench.submit(request(1, "hello", 12))
    bench.turn(1)
    fake.trim = lambda sequence, n_past: stubborn(sequence, n_past) if refusals else trim(sequence, n_past)
    bench.run()
    assert bench.text(1) == answer(b"hello", 12)


def test_a_request_may_limit_drafts_or_turn_them_off() -> None:
    oracle = Oracle()
    bench = Bench(backend(oracle))
    bench.submit(
        request(1, "hello", 12, speculative=Speculative(n_max=0)),
        request(2, "other", 12, speculative=Speculative(n_max=2, n_min=1, p_min=0.5)),
    )
    bench.run()
    assert bench.finished(1).timings.drafted_tokens == 0
    assert max(n_drafted for _, n_drafted, _ in oracle.judged) == 2
    assert {(wish.n_min, wish.p_min) for wish in oracle.asked if wish.task == 2} == {(1, 0.5)}


def test_no_draft_is_longer_than_the_answer_or_the_context() -> None:
    oracle = Oracle(length=50)
    bench = Bench(backend(oracle, n_slots=1, n_ctx=32))
    bench.submit(request(1, "hello", 4), request(2, "hello", -1))
    bench.run()
    assert bench.text(2) == answer(b"hello", 27)
    assert max(len(wish.tokens) + wish.n_max for wish in oracle.asked) == 31
    assert max(wish.n_max for wish in oracle.asked if wish.task == 1) == 2


def test_the_first_who_has_a_draft_drafts_and_is_judged() -> None:
    silent, first, second = Oracle(length=0), Oracle(length=3), Oracle(length=3)
    bench = Bench(backend(silent, first, second))
    bench.submit(request(1, "hello", 20))
    bench.run()
    assert first.judged
    assert not silent.judged
    assert not second.judged
    assert {wish.n_max for wish in second.asked} == {0}


def test_while_a_prompt_is_evaluated_drafters_may_keep_up() -> None:
    oracle = Oracle()
    bench = Bench(backend(oracle, n_ctx=512, n_step=32, n_drafted=20))
    bench.submit(request(1, "x" * 200, 2))
    bench.turn(3)
    assert [(wish.task, wish.n_max, len(wish.tokens)) for wish in oracle.asked] == [(1, 0, 200)] * 3


def test_drafts_take_what_prompts_leave() -> None:
    needs = [
        Need(0, 10, 1, generating=True, n_drafted=40),
        Need(1, 5, 1, generating=True, n_drafted=4),
        Need(2, 0, 100, generating=False),
    ]
    shares = plan(needs, n_batch=64, n_prompt_beside=32)
    assert shares == [
        Share(0, 10, 1, logits=True, n_drafted=26),
        Share(1, 5, 1, logits=True, n_drafted=4),
        Share(2, 0, 32, logits=False),
    ]
    assert without_drafts(shares) == [replace(share, n_drafted=0) for share in shares]
    assert without_drafts(shares[2:]) is None


def test_the_pace_follows_success() -> None:
    pace = Pace(20)
    assert pace.next() == START
    for n_accepted, following in ((4, 8), (8, 16), (16, 20), (20, 20), (16, 17), (17, 20)):
        pace.judge(pace.next(), n_accepted, COST_CPU)
        assert pace.next() == following


def pauses(pace: Pace, n_accepted: int, count: int) -> list[int]:
    """After drafts of which at most so many tokens come true."""
    found = []
    for _ in range(count):
        n_drafted = pace.next()
        pace.judge(n_drafted, min(n_drafted, n_accepted), COST_CPU)
        pause = 0
        while not pace.next():
            pause += 1
        found.append(pause)
    return found


def test_who_only_loses_pauses_longer_each_time() -> None:
    pace = Pace(16)
    assert pauses(pace, 0, 12) == [0, 0, 0, 0, 0, 1, 3, 7, 15, 31, PAUSE_MAX, PAUSE_MAX]
    pace.judge(1, 1, COST_CPU)
    assert pace.next() == 2
    pace.judge(4, 0, COST_CPU)
    assert [pace.next(), pace.next()] == [0, 1]


@pytest.mark.parametrize(("cost", "paused"), [(COST_CPU, True), (COST_GPU, False)])
def test_what_one_token_in_three_is_worth_depends_on_what_drafts_cost(cost: float, paused: bool) -> None:
    pace, found = Pace(3), 0
    for _ in range(40):
        while not (n_drafted := pace.next()):
            found += 1
        pace.judge(3, 1, cost) if n_drafted else None
    assert (found > 0) is paused


@pytest.mark.parametrize(
    ("types", "n_slots", "n_step", "n_drafted"),
    [
        ((), 4, 512, 0),
        (("draft-simple",), 4, 512, 12),
        (("ngram-simple",), 4, 512, DRAFTED_MAX),
        (("ngram-simple",), 1, 512, 48),
        (("ngram-mod", "draft-simple"), 1, 512, 64),
        (("ngram-simple",), 4, 16, 12),
        (("ngram-simple",), 4, 4, 0),
    ],
)
def test_how_many_drafted_tokens_a_step_has_room_for(
    types: tuple[str, ...], n_slots: int, n_step: int, n_drafted: int
) -> None:
    assert SpeculationSettings(types, draft=DraftModelSettings("x")).n_drafted(n_slots, n_step) == n_drafted


def test_adapters_and_drafts_together() -> None:
    class Adapted(Oracle):
        def _draft(self, wish: Wish) -> list[int]:
            tokens = list(wish.tokens)
            for _ in range(min(self.length, wish.n_max)):
                tokens.append(adapted(next_token(tokens), ((0, 1.0),)))
            return tokens[len(wish.tokens) :]

    bench = Bench(backend(Adapted()))
    bench.submit(request(1, "hello", 20, adapters=((0, 1.0),)), request(2, "hello", 20))
    bench.run()
    assert bench.text(1) == answer(b"hello", 20, adapters=((0, 1.0),))
    assert bench.text(2) == answer(b"hello", 20)
    assert bench.finished(1).timings.accepted_tokens > bench.finished(2).timings.accepted_tokens


@pytest.mark.parametrize(("n_free", "lengths"), [(100, [4, 4]), (5, [3, 2]), (1, [1]), (0, []), (-3, [])])
def test_drafts_are_no_longer_than_the_memory_has_room_for(n_free: int, lengths: list[int]) -> None:
    slots: list[Any] = [
        SimpleNamespace(
            id=id,
            state=State.GENERATING,
            task=SimpleNamespace(
                id=id, tokens=[1, 2, 3], n_predicted=1, n_shifts=0, request=request(id, "x", 50)
            ),
        )
        for id in range(2)
    ]
    drafts = Speculation([Oracle()], 24, FakeBackend(n_ctx=100).facts).drafts(slots, n_free)
    assert [len(draft) for draft in drafts.values()] == lengths


def test_each_request_begins_at_its_own_pace() -> None:
    oracle = Oracle(right=0.0)
    bench = Bench(backend(oracle, n_slots=1))
    for id in (1, 2):
        bench.submit(request(id, "hello", 20))
        bench.run()
    firsts = {id: next(n_drafted for task, n_drafted, _ in oracle.judged if task == id) for id in (1, 2)}
    assert firsts == {1: START, 2: START}


def test_drafts_that_cost_as_much_as_they_gain_are_given_up() -> None:
    cheap, dear = Oracle(right=0.8), Oracle(right=0.8)
    dear.cost = 0.9
    counts = []
    for oracle in (cheap, dear):
        bench = Bench(backend(oracle, n_ctx=600))
        bench.submit(request(1, "hello", 300))
        bench.run()
        assert bench.text(1) == answer(b"hello", 300)
        counts.append(bench.engine.stats().drafted_tokens)
    assert counts[1] * 3 < counts[0]
