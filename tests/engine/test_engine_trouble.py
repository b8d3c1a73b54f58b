"""The engine in trouble: who leaves, memory that is short, computations that fail, stops. Every cancel at every turn."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.engine.backend import Outcome
from llamad.engine.stages import Stage
from llamad.engine.vocabulary import (
    SamplingParams,
)
from tests.conftest import wait_until
from tests.engine.bench import Bench, assert_answers, request
from tests.engine.fake import FakeBackend, FakeChain, answer


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


def test_a_sampler_that_cannot_be_made_fails_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend(n_slots=2)
    make = backend.chain

    def fault(stages: Sequence[Stage]) -> FakeChain:
        if any(stage.args[-1:] == (99,) for stage in stages):
            raise RuntimeError("a bug")
        return make(stages)

    monkeypatch.setattr(backend, "chain", fault)
    bench = Bench(backend)
    good = request(1, "hello", 4)
    bench.submit(good, request(2, "world", sampling=SamplingParams(seed=99)))
    bench.run()
    assert_answers(bench, [good])
    assert bench.failed(2).error.kind == "internal"
    assert bench.engine.stats().requests_failed == 1


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
