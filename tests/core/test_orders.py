"""Orders by scenario: an operator loads, unloads, reconfigures and stops."""

from __future__ import annotations

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import ModelEntry
from tests.core.driver import Driver


def test_an_operators_load_clears_the_pause() -> None:
    d = Driver("a")
    d.ask("a")
    d.exit("a", exit_code=1)
    ticket = d.load("a")
    assert d.spawned() == ["a"]
    d.ready("a")
    assert d.seen(a.AnswerTicket) == [a.AnswerTicket(ticket)]


def test_a_process_that_does_not_leave_is_pressed() -> None:
    d = Driver(ModelEntry("a", stop_timeout_s=10))
    d.loaded("a")
    ticket = d.unload("a")
    assert len(d.seen(a.AskExit)) == 1
    d.wait(5)
    assert len(d.seen(a.Terminate)) == 1
    d.wait(5)
    assert len(d.seen(a.Kill)) == 1
    d.exit("a", signal=9)
    assert d.seen(a.AnswerTicket) == [a.AnswerTicket(ticket)]
    view = d.scheduler.model_view("a")
    assert view is not None
    assert not view.failed


def test_unload_waits_for_running_requests_and_force_does_not() -> None:
    d = Driver("a")
    d.loaded("a")
    d.ask("a")
    d.unload("a")
    assert d.seen(a.AskExit) == []
    queued = d.ask("a")
    assert d.granted() == [], "new requests wait for the next process"
    d.unload("a", force=True)
    assert len(d.seen(a.Kill)) == 1
    d.exit("a", signal=9)
    assert len(d.seen(a.EndLease)) == 1
    assert d.spawned() == ["a"]
    d.ready("a")
    assert d.granted() == [queued]


def test_load_overtakes_an_unload_that_still_waits() -> None:
    d = Driver("a")
    d.loaded("a")
    d.ask("a")
    unload = d.unload("a")
    load = d.load("a")
    answers = {answer.ticket: answer.kind for answer in d.seen(a.AnswerTicket)}
    assert answers == {unload: "superseded", load: ""}


def test_load_cancel_unload_load_while_another_asks() -> None:
    d = Driver("a", "b", models_max=1)
    d.load("a")
    unload = d.unload("a")
    assert len(d.seen(a.Kill)) == 1
    again = d.unload("a")
    load = d.load("a")
    d.ask("b")
    d.exit("a", signal=9)
    assert {answer.ticket for answer in d.seen(a.AnswerTicket)} == {unload, again}
    assert d.spawned() == ["a"]
    d.ready("a")
    assert d.seen(a.AnswerTicket) == [a.AnswerTicket(load)]
    assert d.asked_to_exit() == ["a"], "b has waited, and nobody uses a"


def test_reload_keeps_what_is_unchanged_and_drains_what_changed() -> None:
    d = Driver("a", "b", "c")
    for name in "abc":
        d.loaded(name)
    stream = d.ask("b")
    d.configure("a", ModelEntry("b", fingerprint="2"))
    assert d.asked_to_exit() == ["c"], "removed and idle"
    queued = d.ask("b")
    assert d.granted() == []
    d.release(stream)
    assert d.asked_to_exit() == ["b"]
    assert d.scheduler.state.models["b"].reason == "drained as its configuration has changed"
    d.exit("b")
    assert d.spawned() == ["b"]
    d.ready("b")
    assert d.granted() == [queued]
    d.exit("c")
    assert "c" not in d.scheduler.state.models
    d.ask("c")
    assert d.refusal().status == 404
    d.ask("a")
    assert len(d.granted()) == 1


def test_a_change_taken_back_lifts_the_drain() -> None:
    d = Driver("a")
    d.loaded("a")
    d.ask("a")
    d.configure(ModelEntry("a", fingerprint="2"))
    queued = d.ask("a")
    assert d.granted() == []
    d.configure("a")
    assert d.granted() == [queued]


def test_models_wanted_at_start_are_loaded_as_far_as_there_is_room() -> None:
    entries = [ModelEntry(name, load_on_startup=True) for name in "abc"]
    d = Driver(*entries, models_max=2)
    assert d.spawned() == ["a", "b"]
    assert [note.model for note in d.seen(a.Note) if note.kind == "skip"] == ["c"]
    d.configure(*entries, models_max=3)
    assert d.spawned() == [], "never on a reload"


def test_a_lowered_limit_lets_idle_models_go() -> None:
    d = Driver("a", "b", models_max=2)
    d.loaded("a")
    d.loaded("b")
    d.ask("b")
    d.configure("a", "b", models_max=1)
    assert d.asked_to_exit() == ["a"]


def test_stop_lets_requests_end_refuses_new_ones_and_finishes_once() -> None:
    d = Driver("a", "b", "c", models_max=3)
    d.loaded("a")
    d.loaded("b")
    stream = d.ask("b")
    waiting = d.ask("c")
    d.step(e.StopAsked(d.now + 30))
    assert d.asked_to_exit() == ["a"]
    assert d.refusal().key == waiting
    assert len(d.seen(a.Kill)) == 1, "c was still loading"
    d.ask("a")
    assert d.refusal().kind == "stopping"
    d.exit("a")
    d.exit("c", signal=9)
    d.release(stream)
    assert d.asked_to_exit() == ["b"]
    assert d.seen(a.Finish) == []
    d.exit("b")
    assert len(d.seen(a.Finish)) == 1


def test_stop_ends_what_runs_at_the_deadline() -> None:
    d = Driver(ModelEntry("a", stop_timeout_s=4))
    d.loaded("a")
    d.ask("a")
    d.step(e.StopAsked(d.now + 30))
    d.wait(31)
    assert len(d.seen(a.Terminate)) == 1
    d.wait(4)
    assert len(d.seen(a.Kill)) == 1
    d.exit("a", signal=9)
    assert len(d.seen(a.EndLease)) == 1
    assert len(d.seen(a.Finish)) == 1


def reason(d: Driver, model: str) -> str:
    view = d.scheduler.model_view(model)
    assert view is not None
    return view.reason


def test_a_load_says_for_whom_it_is() -> None:
    d = Driver("a", "b")
    d.load("a")
    assert reason(d, "a") == "loading by order"
    d.ask("b")
    assert reason(d, "b") == "loading for 1 waiting"


def test_who_waits_says_for_what() -> None:
    d = Driver("a", "b", "c", models_max=1)
    d.loaded("a")
    lease = d.ask("a")
    d.ask("b")
    d.ask("c")
    assert reason(d, "b") == "waits for room, at position 1 of the queue"
    assert reason(d, "c") == "waits for room, at position 2 of the queue"
    d.release(lease)
    assert reason(d, "b") == "waits until 'a' has left"


def test_a_refusal_is_no_reason_for_a_state() -> None:
    d = Driver(ModelEntry("a", pinned=True), "b", models_max=1)
    d.loaded("a")
    d.ask("b")
    assert d.seen(a.RefuseLease)
    assert reason(d, "b") == "never loaded"


def test_what_left_the_configuration_can_be_ended_while_it_lasts() -> None:
    d = Driver("a", "b")
    d.loaded("a")
    d.ask("a")
    d.configure("b")
    ticket = d.unload("a", force=True)
    assert len(d.seen(a.Kill)) == 1
    d.exit("a", signal=9)
    assert d.seen(a.AnswerTicket) == [a.AnswerTicket(ticket)]
    d.unload("a")
    assert d.seen(a.AnswerTicket)[0].kind == "model-not-found"
