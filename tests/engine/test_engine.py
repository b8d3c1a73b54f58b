"""The engine on a toy model, one turn at a time: every answer is known, every cancellation is tried at every turn."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.engine.backend import Outcome
from llamad.engine.engine import Engine
from llamad.engine.vocabulary import (
    SEED_RANDOM,
    Failed,
    Finished,
    GenerateRequest,
    Output,
    SamplingParams,
    Text,
)
from tests.conftest import wait_until
from tests.engine.fake import EOG, FakeBackend, answer, next_token

GREEDY = SamplingParams(temperature=0.0)
TURNS_MAX = 5000


def request(id: int, prompt: str, max_tokens: int = 8, **fields: Any) -> GenerateRequest:
    return GenerateRequest(id, tuple(prompt.encode()), max_tokens, **{"sampling": GREEDY, **fields})


class Bench:
    """An engine that is turned by hand."""

    def __init__(self, backend: FakeBackend | None = None, **options: Any) -> None:
        self.backend = backend or FakeBackend()
        self.steps: list[list[Output]] = []
        self.engine = Engine(self.backend, self.steps.append, **options)

    @property
    def outputs(self) -> list[Output]:
        return [output for step in self.steps for output in step]

    def submit(self, *requests: GenerateRequest) -> None:
        for item in requests:
            self.engine.submit(item)

    def run(self) -> None:
        """Turn until nothing is left to do."""
        for _ in range(TURNS_MAX):
            stats = self.engine.stats()
            if not stats.slots_busy and not stats.queued:
                return
            assert self.engine.turn()
        raise AssertionError(f"still busy after {TURNS_MAX} turns: {self.engine.slots()}")

    def turn(self, count: int) -> None:
        for _ in range(count):
            stats = self.engine.stats()
            if stats.slots_busy or stats.queued:
                self.engine.turn()

    def text(self, id: int) -> str:
        return "".join(output.text for output in self.outputs if isinstance(output, Text) and output.id == id)

    def last(self, id: int) -> Finished | Failed:
        last = [item for item in self.outputs if item.id == id and not isinstance(item, Text)]
        assert len(last) == 1, f"request {id} got {len(last)} last words"
        return last[0]

    def finished(self, id: int) -> Finished:
        last = self.last(id)
        assert isinstance(last, Finished), last
        return last

    def failed(self, id: int) -> Failed:
        last = self.last(id)
        assert isinstance(last, Failed), last
        return last

    def answered(self) -> set[int]:
        return {output.id for output in self.outputs if not isinstance(output, Text)}


def assert_answers(bench: Bench, requests: Iterable[GenerateRequest]) -> None:
    for item in requests:
        assert bench.text(item.id) == answer(item.tokens, item.max_tokens)
        assert bench.finished(item.id).reason == "length"


def test_one_request_is_answered_with_its_text_and_its_costs() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", 5))
    bench.run()
    assert bench.text(1) == answer(b"hello", 5)
    last = bench.finished(1)
    assert (last.reason, last.stop_word) == ("length", "")
    timings = last.timings
    assert (timings.prompt_tokens, timings.cached_tokens, timings.predicted_tokens) == (5, 0, 5)
    assert sum(output.tokens for output in bench.outputs if isinstance(output, Text)) == 5


def test_more_requests_than_slots_are_all_answered_and_share_batches() -> None:
    bench = Bench(FakeBackend(n_slots=4))
    requests = [request(id, f"prompt number {id}", 10) for id in range(11)]
    bench.submit(*requests)
    bench.run()
    assert_answers(bench, requests)
    stats = bench.engine.stats()
    assert (stats.generating_max, stats.requests_done, stats.predicted_tokens) == (4, 11, 110)
    assert stats.steps == len(bench.backend.batches)
    assert stats.decoded_tokens == sum(len(e.tokens) for batch in bench.backend.batches for e in batch)


def test_a_step_is_delivered_with_one_call() -> None:
    bench = Bench(FakeBackend(n_slots=4))
    bench.submit(*[request(id, f"same size {id}", 4) for id in range(4)])
    bench.run()
    assert max(len({output.id for output in step}) for step in bench.steps) == 4
    assert len(bench.steps) <= bench.engine.stats().steps


def test_a_long_prompt_does_not_stop_a_stream() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_ctx=2048, n_step=64))
    bench.submit(request(1, "short", 40))
    bench.turn(3)
    bench.submit(request(2, "x" * 1000, 3))
    before = bench.engine.slots()[0].predicted_tokens
    bench.turn(8)
    assert bench.engine.slots()[0].predicted_tokens == before + 8
    assert bench.engine.slots()[1].state == "processing_prompt"
    bench.run()
    assert bench.text(2) == answer(b"x" * 1000, 3)


def test_the_end_of_generation_is_no_text_but_a_token() -> None:
    backend = FakeBackend()
    backend.successor = lambda tokens: EOG if len(tokens) == 9 else next_token(tokens)
    bench = Bench(backend)
    bench.submit(request(1, "hello", 50))
    bench.run()
    assert bench.text(1) == answer(b"hello", 4)
    assert (bench.finished(1).reason, bench.finished(1).timings.predicted_tokens) == ("stop", 5)


def test_ignore_eos_goes_on() -> None:
    backend = FakeBackend()
    backend.successor = lambda tokens: EOG
    bench = Bench(backend)
    bench.submit(request(1, "hello", 6, sampling=SamplingParams(temperature=0.0, ignore_eos=True)))
    bench.run()
    assert (bench.finished(1).reason, bench.finished(1).timings.predicted_tokens) == ("length", 6)


def test_stop_strings_end_the_answer_and_are_not_part_of_it() -> None:
    full = answer(b"hello", 30)
    stop = full[7:10]
    bench = Bench()
    bench.submit(request(1, "hello", 30, stop=("ZZZ", stop)))
    bench.run()
    assert bench.text(1) == full[: full.find(stop)]
    assert (bench.finished(1).reason, bench.finished(1).stop_word) == ("stop", stop)


def test_text_held_for_a_stop_string_comes_out_at_the_end() -> None:
    full = answer(b"hello", 6)
    bench = Bench()
    bench.submit(request(1, "hello", 6, stop=(full[3:] + "!",)))
    bench.run()
    assert bench.text(1) == full


def test_max_tokens_zero_only_fills_the_cache() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", 0))
    bench.run()
    assert (bench.text(1), bench.finished(1).timings.predicted_tokens) == ("", 0)
    bench.submit(request(2, "hello you", 2))
    bench.run()
    assert bench.finished(2).timings.cached_tokens == 5


def test_the_context_full_in_mid_answer_is_length() -> None:
    bench = Bench(FakeBackend(n_slots=1, n_ctx=32))
    bench.submit(request(1, "hello", -1))
    bench.run()
    assert bench.finished(1).reason == "length"
    assert bench.text(1) == answer(b"hello", 27)


def test_what_cannot_be_served_fails_at_once_and_hurts_nobody() -> None:
    bench = Bench(FakeBackend(n_slots=1, n_ctx=32))
    bench.submit(request(1, "hello", 3), request(2, "x" * 32), request(3, ""))
    assert bench.failed(2).error.details == {"n_prompt_tokens": 32, "n_ctx": 32}
    assert (bench.failed(2).error.status, bench.failed(3).error.status) == (400, 400)
    bench.run()
    assert bench.text(1) == answer(b"hello", 3)
    assert bench.engine.stats().requests_failed == 2


def test_the_queue_is_bounded() -> None:
    bench = Bench(FakeBackend(n_slots=1), queue_max=2)
    requests = [request(id, "hello", 3) for id in range(5)]
    bench.submit(*requests)
    assert [bench.failed(id).error.kind for id in (3, 4)] == ["queue-full", "queue-full"]
    assert bench.failed(3).error.retry_after_s
    bench.run()
    assert_answers(bench, requests[:3])


def test_turns_of_a_conversation_reuse_their_own_prefix() -> None:
    bench = Bench(FakeBackend(n_slots=2))
    history = {1: "first conversation", 2: "second one, other"}
    for turn in range(3):
        for who in (1, 2):
            id = 10 * turn + who
            bench.submit(request(id, history[who], 4))
            bench.run()
            cached = bench.finished(id).timings.cached_tokens
            assert cached == 0 if turn == 0 else cached >= len(history[who]) - 8
            assert bench.text(id) == answer(history[who].encode(), 4)
            history[who] += bench.text(id) + " more"


def test_cache_prompt_off_evaluates_everything() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", 2))
    bench.run()
    bench.submit(request(2, "hello", 2, cache_prompt=False))
    bench.run()
    assert bench.finished(2).timings.cached_tokens == 0
    assert bench.text(2) == bench.text(1)


def test_a_sliding_window_that_has_moved_on_is_not_reused() -> None:
    backend = FakeBackend(n_slots=1)
    backend.n_swa = 8
    bench = Bench(backend)
    bench.submit(request(1, "a rather long beginning", 12))
    bench.run()
    bench.submit(request(2, "a rather long beginning", 3))
    bench.run()
    assert bench.finished(2).timings.cached_tokens == 0
    assert bench.text(2) == answer(b"a rather long beginning", 3)


def test_a_slot_can_be_asked_for_and_others_pass() -> None:
    bench = Bench(FakeBackend(n_slots=2))
    bench.submit(request(1, "hello", 20, id_slot=1))
    bench.turn(2)
    bench.submit(request(2, "second", 3, id_slot=1), request(3, "third", 3))
    bench.run()
    assert [bench.finished(id).slot for id in (1, 2, 3)] == [1, 1, 0]
    order = [output.id for output in bench.outputs if isinstance(output, Finished)]
    assert order == [3, 1, 2]


@pytest.mark.parametrize("turns", range(16))
def test_cancel_at_every_turn(turns: int) -> None:
    bench = Bench(FakeBackend(n_slots=2, n_step=8))
    others = [request(2, "a neighbour of it", 8), request(3, "who waits for a slot", 8)]
    bench.submit(request(1, "a prompt of four chunks, at 8 each", 8), *others)
    bench.turn(turns)
    was_answered = 1 in bench.answered()
    bench.engine.cancel(1)
    seen = len([output for output in bench.outputs if output.id == 1])
    bench.run()
    assert_answers(bench, others)
    assert len([output for output in bench.outputs if output.id == 1]) == seen
    assert (1 in bench.answered()) == was_answered
    stats = bench.engine.stats()
    assert (stats.slots_busy, stats.queued) == (0, 0)
    assert stats.requests_cancelled == (not was_answered)


def test_cancel_before_anything_happened() -> None:
    bench = Bench(FakeBackend(n_slots=1))
    bench.submit(request(1, "hello"), request(2, "other", 3))
    bench.engine.cancel(1)
    bench.run()
    assert bench.answered() == {2}
    assert bench.engine.stats().requests_cancelled == 1


def test_cancel_in_mid_decode_interrupts_it_only_when_alone() -> None:
    backend = FakeBackend(n_slots=2, n_step=16)
    bench = Bench(backend)
    bench.submit(request(1, "x" * 100))
    bench.turn(2)
    done = len(backend.batches)
    backend.on_decode = lambda: bench.engine.cancel(1)
    bench.turn(1)
    assert len(backend.batches) == done, "the decode was not interrupted"
    backend.on_decode = lambda: None
    bench.run()
    assert bench.answered() == set()

    bench.submit(request(2, "y" * 100), request(3, "z" * 20, 3))
    backend.on_decode = lambda: bench.engine.cancel(2)
    bench.run()
    assert bench.answered() == {3}
    assert bench.text(3) == answer(b"z" * 20, 3)


def test_an_interruption_that_comes_too_late_costs_nothing_but_time() -> None:
    backend = FakeBackend(n_slots=2)
    bench = Bench(backend)
    bench.submit(request(1, "hello", 10), request(2, "world", 10))
    bench.turn(4)
    backend.forced.append(Outcome.ABORTED)
    bench.run()
    assert (bench.text(1), bench.text(2)) == (answer(b"hello", 10), answer(b"world", 10))


def test_a_shared_memory_too_small_for_all_serves_all() -> None:
    backend = FakeBackend(n_slots=4, n_ctx=64, n_step=16)
    bench = Bench(backend)
    requests = [request(id, f"prompt {id}", 45) for id in range(6)]
    bench.submit(*requests)
    bench.run()
    assert_answers(bench, requests)


def test_a_request_waits_until_there_is_room_for_it() -> None:
    bench = Bench(FakeBackend(n_slots=4, n_ctx=64))
    bench.submit(request(1, "x" * 40, 4), request(2, "y" * 30, 4))
    bench.turn(2)
    assert [slot.request for slot in bench.engine.slots()] == [1, None, None, None]
    bench.run()
    assert bench.text(2) == answer(b"y" * 30, 4)


def test_random_numbers_survive_making_room() -> None:
    sampled = SamplingParams(seed=5, top_k=0, top_p=1.0, min_p=0.0)
    alone = Bench(FakeBackend(n_slots=4, n_ctx=64))
    alone.submit(request(1, "prompt 1", 45, sampling=sampled))
    alone.run()
    crowd = Bench(FakeBackend(n_slots=4, n_ctx=64))
    crowd.submit(*[request(id, f"prompt {id}", 45, sampling=sampled) for id in (0, 1, 2)])
    crowd.run()
    assert crowd.text(1) == alone.text(1)


def test_an_idle_slot_forgets_before_anybody_waits() -> None:
    backend = FakeBackend(n_slots=2, n_ctx=64)
    bench = Bench(backend)
    bench.submit(request(1, "x" * 40, 4))
    bench.run()
    bench.submit(request(2, "y" * 50, 4))
    bench.run()
    assert bench.text(2) == answer(b"y" * 50, 4)
    bench.submit(request(3, "x" * 40, 1))
    bench.run()
    assert bench.finished(3).timings.cached_tokens == 0


def test_a_broken_computation_fails_its_batch_only() -> None:
    backend = FakeBackend(n_slots=2)
    bench = Bench(backend)
    later = request(3, "later", 4)
    bench.submit(request(1, "hello"), request(2, "world"), later)
    backend.forced += [Outcome.DONE, Outcome.BROKEN]
    bench.run()
    assert [bench.failed(id).error.status for id in (1, 2)] == [500, 500]
    assert_answers(bench, [later])


def test_an_input_that_is_refused_fails_alone() -> None:
    backend = FakeBackend(n_slots=3)
    backend.refuse_token = ord("!")
    bench = Bench(backend)
    good = [request(1, "hello", 4), request(3, "world", 4)]
    bench.submit(good[0], request(2, "wh!t", 4), good[1])
    bench.run()
    assert_answers(bench, good)
    assert bench.failed(2).error.kind == "decode-failed"


def test_a_seed_that_is_drawn_is_told_and_repeats_the_answer() -> None:
    bench = Bench(draw_seed=lambda: 4711)
    free = SamplingParams(seed=SEED_RANDOM, top_k=0)
    bench.submit(request(1, "hello", 12, sampling=free))
    bench.run()
    assert bench.finished(1).seed == 4711
    bench.submit(request(2, "hello", 12, sampling=SamplingParams(seed=4711, top_k=0)))
    bench.submit(request(3, "hello", 12, sampling=SamplingParams(seed=4712, top_k=0)))
    bench.run()
    assert bench.text(2) == bench.text(1) != bench.text(3)


def test_slots_show_what_they_do() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_ctx=128, n_step=16, shared=False))
    bench.submit(request(9, "x" * 40, 8))
    bench.turn(1)
    busy, idle = bench.engine.slots()
    assert (busy.state, busy.request, busy.prompt_tokens, busy.n_ctx) == ("processing_prompt", 9, 40, 64)
    assert (idle.state, idle.request) == ("idle", None)
    bench.run()
    assert {slot.state for slot in bench.engine.slots()} == {"idle"}


def test_stop_answers_everyone_who_is_left() -> None:
    bench = Bench(FakeBackend(n_slots=1))
    bench.submit(request(1, "hello", 50), request(2, "waiting"))
    bench.turn(3)
    bench.submit(request(3, "just in"))
    bench.engine.stop()
    bench.engine.run()
    assert [bench.failed(id).error.kind for id in (1, 2, 3)] == ["stopping"] * 3
    bench.submit(request(4, "too late"))
    assert bench.failed(4).error.kind == "stopping"


def test_a_fault_in_the_loop_leaves_nobody_waiting() -> None:
    backend = FakeBackend(n_slots=1)
    bench = Bench(backend)
    bench.submit(request(1, "hello"), request(2, "waiting"))

    def fault() -> None:
        raise RuntimeError("a bug")

    backend.on_decode = fault
    with pytest.raises(RuntimeError, match="a bug"):
        bench.engine.run()
    assert bench.answered() == {1, 2}


def test_its_own_thread_serves_callers_of_other_threads() -> None:
    bench = Bench(FakeBackend(n_slots=4), queue_max=100)
    thread = threading.Thread(target=bench.engine.run)
    thread.start()
    requests = [request(id, f"prompt {id}", 20) for id in range(40)]
    callers = [threading.Thread(target=bench.submit, args=requests[begin::4]) for begin in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    wait_until(lambda: bench.engine.stats().requests_done == 40)
    bench.engine.stop()
    thread.join(5)
    assert not thread.is_alive()
    assert_answers(bench, requests)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_traffic_is_answered_exactly_once(data: st.DataObject) -> None:
    n_ctx = data.draw(st.integers(40, 120))
    backend = FakeBackend(data.draw(st.integers(1, 5)), n_ctx, n_step=data.draw(st.integers(5, 40)))
    bench = Bench(backend)
    prompts: Sequence[str] = data.draw(st.lists(st.text("ab", min_size=1, max_size=30), max_size=12))
    requests = [request(id, prompt, data.draw(st.integers(1, 9))) for id, prompt in enumerate(prompts)]
    cancelled = set()
    for item in requests:
        bench.submit(item)
        bench.turn(data.draw(st.integers(0, 4)))
        if data.draw(st.integers(0, 3)) == 0:
            victim = data.draw(st.integers(0, item.id))
            if victim not in bench.answered():
                cancelled.add(victim)
            bench.engine.cancel(victim)
    bench.run()
    assert bench.answered() == {item.id for item in requests} - cancelled
    assert_answers(bench, [item for item in requests if item.id not in cancelled])
