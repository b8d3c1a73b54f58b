"""Leases beside the slots: WebSockets, conversations that outlive their clients, and those who follow them."""

from __future__ import annotations

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import LeaseKey, ModelEntry
from llamad.core.model import State
from tests.core.driver import Driver

ELSEWHERE = LeaseKey(0, 1)


def test_a_websocket_keeps_its_model_busy_and_takes_no_slot() -> None:
    d = Driver("a", "b", models_max=1, queue_timeout_s=0, drain_after_s=1000)
    d.loaded("a", slots=1)
    sockets = [d.ask("a", slot=False) for _ in range(5)]
    assert d.granted() == sockets[-1:]
    requests = [d.ask("a"), d.ask("a")]
    assert d.granted() == requests[-1:]
    assert d.ask("a", slot=False) in d.granted(), "a full process takes sockets, too"
    d.ask("b")
    for key in requests:
        d.release(key)
    assert d.asked_to_exit() == []


def test_a_websocket_waits_for_the_load_and_its_end_is_the_last_use() -> None:
    d = Driver(ModelEntry("a", fingerprint="1", unload_idle_s=10))
    key = d.ask("a", slot=False)
    d.ready("a")
    assert d.granted() == [key]
    d.wait(100)
    assert d.state("a") is State.LOADED
    d.release(key)
    d.wait(9)
    assert d.state("a") is State.LOADED
    d.wait(1.5)
    assert d.state("a") is State.STOPPING


def test_a_detached_lease_outlives_its_worker() -> None:
    d = Driver("a", "b", models_max=1)
    d.loaded("a")
    key = d.ask("a", worker=7)
    d.step(e.LeaseDetached(key, ELSEWHERE))
    d.step(e.WorkerLost(7))
    d.release(key)
    d.ask("b")
    assert d.state("a") is State.LOADED, "the generation still runs"
    d.release(ELSEWHERE)
    assert d.asked_to_exit() == ["a"]


def test_a_detached_lease_ends_with_its_process() -> None:
    d = Driver("a")
    d.loaded("a")
    d.step(e.LeaseDetached(d.ask("a"), ELSEWHERE))
    d.exit("a", signal=9)
    (ended,) = d.seen(a.EndLease)
    assert ended.key == ELSEWHERE
    assert "SIGKILL" in ended.message
    d.release(ELSEWHERE)
    assert d.actions == []


def test_what_still_waits_cannot_be_detached() -> None:
    d = Driver("a")
    key = d.ask("a")
    d.step(e.LeaseDetached(key, ELSEWHERE))
    d.ready("a")
    assert d.granted() == []


def test_who_follows_keeps_the_process_but_does_not_make_it_younger() -> None:
    d = Driver("a", "b", "c", models_max=2, drain_after_s=1000)
    d.loaded("a")
    d.now += 1
    d.loaded("b")
    d.now += 1
    reader = LeaseKey(1, 99)
    d.step(e.LeaseFollowed(reader, d.child("a")))
    assert d.granted() == [reader]
    d.now += 1
    d.ask("c")
    assert d.asked_to_exit() == ["b"], "a is read from"
    d.exit("b")
    d.ready("c")
    d.release(d.ask("c"))
    d.now += 1
    d.release(reader)
    d.ask("b")
    assert d.asked_to_exit() == ["a"], "reading was no use"


def test_a_sleeper_is_read_from_without_waking() -> None:
    d = Driver(ModelEntry("a", fingerprint="1", sleep_idle_s=5))
    d.loaded("a")
    d.wait(6)
    assert d.state("a") is State.SLEEPING
    reader = LeaseKey(1, 99)
    d.step(e.LeaseFollowed(reader, d.child("a")))
    assert d.granted() == [reader]
    assert d.state("a") is State.SLEEPING


def test_who_follows_a_process_that_is_gone_is_told() -> None:
    d = Driver("a")
    d.step(e.LeaseFollowed(LeaseKey(1, 9), 44))
    assert (d.refusal().kind, d.refusal().status) == ("instance-died", 410)
