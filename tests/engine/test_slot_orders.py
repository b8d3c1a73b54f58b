"""Orders for slots: carried out when the slot is idle, and what comes back answers as what never left."""

from __future__ import annotations

from llamad.engine.orders import SlotDone, SlotOrder, SlotState
from llamad.engine.vocabulary import Failed
from tests.engine.bench import Bench, assert_answers, request
from tests.engine.fake import FakeBackend

PROMPT = "a prompt that is remembered for longer"


def done(bench: Bench, order: SlotOrder) -> SlotDone | Failed:
    bench.submit(order)
    bench.turn(1)
    [last] = [output for output in bench.outputs if output.id == order.id]
    assert isinstance(last, SlotDone | Failed)
    return last


def saved(bench: Bench, id: int = 50) -> SlotState:
    last = done(bench, SlotOrder(id, 0, "save"))
    assert isinstance(last, SlotDone)
    assert last.state is not None
    assert last.n_tokens == len(last.state.tokens)
    return last.state


def test_a_state_goes_to_another_engine_and_answers_there() -> None:
    bench = Bench(FakeBackend(n_slots=1))
    bench.submit(request(1, PROMPT, 4))
    bench.run()
    state = saved(bench)

    other = Bench(FakeBackend(n_slots=1))
    last = done(other, SlotOrder(60, 0, "restore", state))
    assert isinstance(last, SlotDone)
    assert last.n_tokens == len(state.tokens)
    follower = request(2, PROMPT + bench.text(1) + "!", 5)
    other.submit(follower)
    other.run()
    assert_answers(other, [follower])
    assert other.finished(2).timings.cached_tokens == len(state.tokens)


def test_an_order_waits_for_its_slot_and_goes_before_the_next_request() -> None:
    bench = Bench(FakeBackend(n_slots=1))
    bench.submit(request(1, PROMPT, 6), request(2, "another", 3))
    bench.turn(3)
    bench.submit(SlotOrder(70, 0, "erase"))
    bench.turn(1)
    assert 70 not in bench.answered()
    bench.run()
    [erased] = [output for output in bench.outputs if isinstance(output, SlotDone)]
    assert erased.n_tokens == len(PROMPT) + 5
    order = [output.id for output in bench.outputs]
    assert order.index(70) < order.index(2)


def test_an_order_that_is_cancelled_is_not_carried_out() -> None:
    bench = Bench(FakeBackend(n_slots=1))
    bench.submit(request(1, PROMPT, 6), SlotOrder(70, 0, "erase"))
    bench.turn(2)
    bench.engine.cancel(70)
    bench.run()
    assert bench.answered() == {1}
    assert bench.engine.slots()[0].cached_tokens > 0


def test_nothing_remembered_is_nothing_to_save() -> None:
    last = done(Bench(), SlotOrder(1, 0, "save"))
    assert isinstance(last, Failed)
    assert (last.error.status, last.error.kind) == (409, "slot-empty")


def test_a_slot_that_is_none() -> None:
    bench = Bench(FakeBackend(n_slots=2))
    bench.submit(SlotOrder(1, 2, "erase"))
    assert bench.failed(1).error.status == 400


def test_a_state_for_which_there_is_no_room() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_ctx=64))
    bench.submit(request(1, PROMPT, 4))
    bench.run()
    state = saved(bench)
    bench.submit(request(2, "y" * 30, 30, id_slot=1))
    bench.turn(3)
    last = done(bench, SlotOrder(60, 0, "restore", state))
    assert isinstance(last, Failed)
    assert last.error.kind == "slot-state"
    assert bench.engine.slots()[0].cached_tokens == 0
    bench.run()
    assert bench.finished(2).reason == "length"
