"""The scheduler by scenario: what a user would see, one transcript each."""

from __future__ import annotations

import pytest

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import ModelEntry
from llamad.core.model import State
from tests.core.driver import Driver


def test_a_cold_model_is_spawned_once_and_serves_all_who_waited() -> None:
    d = Driver("a", models_max=1)
    first = d.ask("a")
    assert d.spawned() == ["a"]
    second = d.ask("a")
    assert d.spawned() == []
    d.ready("a")
    assert d.granted() == [first, second]


def test_who_comes_while_it_loads_is_told_its_place_among_those_who_wait() -> None:
    d = Driver("a", models_max=1)
    d.ask("a")
    for place in (2, 3):
        key = d.ask("a")
        assert d.seen(a.QueueLease) == [a.QueueLease(key, place)]


def test_an_alias_is_its_model_and_an_unknown_name_is_nobody() -> None:
    d = Driver(ModelEntry("a", aliases=("b:latest",)))
    d.ask("b:latest")
    assert d.spawned() == ["a"]
    d.ask("B:latest")
    assert (d.refusal().kind, d.refusal().status) == ("model-not-found", 404)
    assert "'B:latest'" in d.refusal().message


def test_an_idle_model_makes_room_and_its_exit_is_awaited() -> None:
    d = Driver("a", "b", models_max=1)
    d.loaded("a")
    key = d.ask("b")
    assert d.asked_to_exit() == ["a"]
    assert d.spawned() == []
    d.exit("a")
    assert d.spawned() == ["b"]
    d.ready("b")
    assert d.granted() == [key]


def test_the_least_recently_used_idle_model_leaves() -> None:
    d = Driver("a", "b", "c", models_max=2)
    d.loaded("a")
    d.now += 1
    d.loaded("b")
    d.now += 1
    d.release(d.ask("a"))
    d.ask("c")
    assert d.asked_to_exit() == ["b"]


def test_a_running_request_is_never_cut_by_another_models_load() -> None:
    d = Driver("a", "b", models_max=1, drain_after_s=30, queue_timeout_s=0)
    d.loaded("a")
    stream = d.ask("a")
    d.ask("b")
    assert d.seen(a.AskExit) == []
    d.wait(1000)
    assert d.state("a") is State.LOADED
    d.release(stream)
    assert d.asked_to_exit() == ["a"]


def test_a_steady_client_cannot_starve_a_cold_model() -> None:
    d = Driver("a", "b", models_max=1, drain_after_s=30)
    d.loaded("a")
    running = d.ask("a")
    d.ask("b")
    for _ in range(29):
        d.wait(1)
        following = d.ask("a")
        assert d.granted() == [following], "before drain-after the loaded model goes on serving"
        d.release(running)
        running = following
    d.wait(1.5)
    late = d.ask("a")
    assert d.granted() == []
    d.release(running)
    assert d.asked_to_exit() == ["a"]
    d.exit("a")
    assert d.spawned() == ["b"]
    d.ready("b")
    assert late not in d.granted()


def test_a_drain_is_lifted_when_the_one_it_was_for_has_left() -> None:
    d = Driver("a", "b", models_max=1, drain_after_s=30)
    d.loaded("a")
    d.ask("a")
    cold = d.ask("b")
    d.wait(31)
    queued = d.ask("a")
    assert d.granted() == []
    d.cancel(cold)
    assert d.granted() == [queued]


def test_mixed_requests_cost_one_load_a_model() -> None:
    d = Driver("a", "b", "c", models_max=1)
    loads: list[str] = []
    waiting: dict[str, list[object]] = {"a": [], "b": [], "c": []}
    for name in "abcabcabcabc":
        waiting[name].append(d.ask(name))
        loads += d.spawned()
    for name, following in (("a", "b"), ("b", "c"), ("c", None)):
        d.ready(name)
        assert d.granted() == waiting[name]
        for key in waiting[name]:
            d.release(key)
        if following:
            d.exit(name)
            loads += d.spawned()
    assert loads == ["a", "b", "c"]


def test_pinned_models_stay_and_the_refusal_names_them() -> None:
    d = Driver(ModelEntry("a", pinned=True), "b", models_max=1)
    d.loaded("a")
    d.ask("b")
    refusal = d.refusal()
    assert (refusal.kind, refusal.status) == ("all-pinned", 503)
    assert "'a'" in refusal.message
    assert refusal.retry_after_s
    assert d.state("a") is State.LOADED


def test_a_load_nobody_waits_for_is_dropped_at_once_when_another_needs_the_room() -> None:
    d = Driver("a", "b", models_max=1)
    impatient = d.ask("a")
    d.cancel(impatient)
    assert d.state("a") is State.LOADING
    d.ask("b")
    assert [d.scheduler.state.children[kill.child] for kill in d.seen(a.Kill)] == ["a"]
    d.exit("a", signal=9)
    assert d.spawned() == ["b"]
    assert d.scheduler.state.models["a"].failure is None, "a dropped load is no failure"


def test_a_load_nobody_waits_for_goes_on_for_its_grace_time() -> None:
    d = Driver("a", abandon_after_s=60)
    d.cancel(d.ask("a"))
    d.wait(59)
    assert d.seen(a.Kill) == []
    late = d.ask("a")
    d.wait(100)
    assert d.seen(a.Kill) == [], "somebody waits again"
    d.cancel(late)
    d.wait(61)
    assert len(d.seen(a.Kill)) == 1


def test_a_failed_load_answers_all_who_waited_and_pauses() -> None:
    d = Driver("a")
    d.ask("a")
    d.ask("a")
    child = d.child("a")
    d.step(e.ChildFailed(child, "load-failed", "cannot load 'a': not a GGUF file"))
    d.exit("a", exit_code=1)
    assert [(r.status, r.message) for r in d.seen(a.RefuseLease)] == [
        (503, "cannot load 'a': not a GGUF file")
    ] * 2
    d.ask("a")
    assert d.refusal().message == "cannot load 'a': not a GGUF file"
    assert d.refusal().retry_after_s == 1.0
    d.wait(1)
    d.ask("a")
    assert d.spawned() == ["a"]


@pytest.mark.parametrize(("failures", "pause"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (20, 60)])
def test_the_pause_doubles_up_to_a_minute(failures: int, pause: float) -> None:
    d = Driver("a")
    for _ in range(failures):
        d.wait(61)
        d.ask("a")
        d.exit("a", exit_code=1)
    d.ask("a")
    assert d.refusal().retry_after_s == pause


def test_a_crash_ends_its_leases_with_the_signal_and_the_next_request_reloads() -> None:
    d = Driver("a")
    d.loaded("a")
    key = d.ask("a")
    d.exit("a", signal=9)
    (ended,) = d.seen(a.EndLease)
    assert ended.key == key
    assert "SIGKILL" in ended.message
    view = d.scheduler.model_view("a")
    assert view is not None
    assert (view.state, view.failed, view.signal) == ("unloaded", True, 9)
    d.ask("a")
    assert d.spawned() == ["a"]


def test_crashes_in_a_row_pause_and_a_long_life_forgives() -> None:
    d = Driver("a")
    for _ in range(2):
        d.ask("a")
        d.ready("a")
        d.exit("a", signal=11)
    d.ask("a")
    assert d.refusal().retry_after_s == 2.0
    d.wait(3)
    d.ask("a")
    d.ready("a")
    d.wait(61)
    d.exit("a", signal=11)
    d.ask("a")
    assert d.spawned() == ["a"]


def test_a_worker_that_saw_a_process_die_is_not_sent_there_again() -> None:
    d = Driver("a")
    d.loaded("a")
    dead = d.child("a")
    again = d.ask("a", avoid=dead)
    assert d.granted() == []
    d.exit("a", signal=9)
    assert d.spawned() == ["a"]
    d.ready("a")
    assert d.granted() == [again]


def test_a_process_wrongly_taken_for_dead_serves_after_a_second() -> None:
    d = Driver("a")
    d.loaded("a")
    again = d.ask("a", avoid=d.child("a"))
    d.wait(1.1)
    assert d.granted() == [again]


def test_reads_never_load_and_never_rejuvenate() -> None:
    d = Driver("a", "b", "c", models_max=2)
    d.ask("a", load=False)
    assert (d.refusal().kind, d.refusal().status) == ("model-not-loaded", 409)
    d.loaded("a")
    d.now += 1
    d.loaded("b")
    key = d.ask("a", load=False)
    assert d.granted() == [key]
    d.release(key)
    d.ask("c")
    assert d.asked_to_exit() == ["a"]


def test_no_autoload_refuses_the_cold_and_serves_the_loaded() -> None:
    d = Driver("a", autoload=False)
    d.ask("a")
    assert (d.refusal().kind, d.refusal().status) == ("model-not-loaded", 409)
    d.ask("a", autoload=True)
    assert d.spawned() == ["a"]
    d.ready("a")
    d.ask("a", autoload=False)
    assert len(d.granted()) == 1


@pytest.mark.parametrize(
    ("autoload", "asked", "wakes"),
    [
        (True, None, True),
        (True, False, False),
        (False, None, True),
        (False, False, False),
        (False, True, True),
    ],
)
def test_a_sleeper_wakes_unless_the_request_says_no(autoload: bool, asked: bool | None, wakes: bool) -> None:
    """Where loading on request is off, who was loaded by hand wakes all the same."""
    d = Driver(ModelEntry("a", sleep_idle_s=5), autoload=autoload)
    d.ask("a", autoload=True)
    d.ready("a")
    d.release(d.granted()[0])
    d.wait(6)
    assert d.state("a") is State.SLEEPING
    d.ask("a", autoload=asked)
    if wakes:
        assert d.state("a") is State.LOADING
    else:
        assert (d.refusal().kind, d.refusal().status) == ("model-not-loaded", 409)
        assert d.state("a") is State.SLEEPING


def test_the_queue_is_bounded_for_one_model_and_in_all() -> None:
    d = Driver("a", "b", max_queued=2)
    d.ask("a")
    d.ask("a")
    d.ask("a")
    assert (d.refusal().kind, d.refusal().status) == ("queue-full", 429)
    assert "2 requests" in d.refusal().message
    d.ask("b")
    assert (d.refusal().kind, d.refusal().status) == ("queue-full", 503)


def test_waiting_ends_at_the_queue_timeout() -> None:
    d = Driver("a", "b", models_max=1, queue_timeout_s=600)
    d.loaded("a")
    d.ask("a")
    d.ask("b")
    d.wait(599)
    assert d.seen(a.RefuseLease) == []
    d.wait(2)
    assert (d.refusal().kind, d.refusal().status) == ("queue-timeout", 503)


def test_a_lost_worker_ends_its_leases_only() -> None:
    d = Driver("a", "b", models_max=1)
    d.loaded("a")
    d.ask("a", worker=1)
    d.ask("b", worker=1)
    other = d.ask("a", worker=2)
    d.step(e.WorkerLost(1))
    assert list(d.scheduler.state.queue) == []
    assert d.scheduler.state.models["a"].leases == {other: None}


def test_late_news_of_an_old_process_is_dropped() -> None:
    d = Driver("a")
    d.loaded("a")
    old = d.child("a")
    d.exit("a", signal=9)
    d.ask("a")
    d.step(e.ChildExited(old, exit_code=0))
    d.step(e.ChildReady(old))
    assert d.state("a") is State.LOADING


def test_a_held_lease_survives_its_workers_reconnection() -> None:
    d = Driver("a", "b", models_max=1)
    d.loaded("a")
    key = e.LeaseKey(7, 1)
    d.step(e.LeaseAnnounced(key, d.child("a")))
    d.ask("b")
    assert d.seen(a.AskExit) == [], "a is busy"
    d.release(key)
    assert d.asked_to_exit() == ["a"]
    d.step(e.LeaseAnnounced(e.LeaseKey(7, 2), 999))
    assert len(d.seen(a.EndLease)) == 1


def test_the_last_words_of_a_process_are_one_whole_line() -> None:
    d = Driver("a")
    d.ask("a")
    d.exit("a", exit_code=1, tail="starting\nggml: cannot do it\n\n")
    assert d.refusal().message.endswith("exited with status 1; its last words: ggml: cannot do it")
    d.wait(2)
    d.ask("a")
    d.exit("a", exit_code=1, tail="x" * 1000)
    assert len(d.refusal().message) < 450
    assert d.refusal().message.endswith("…")
