"""A full model: clients take turns, and nobody's wait grows with another's appetite."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llamad.core import actions as a
from llamad.core.events import LeaseKey, ModelEntry
from llamad.core.model import State
from llamad.core.waiters import Ticket, Waiters
from tests.core.driver import Driver


def test_a_process_gets_one_request_more_than_it_has_slots() -> None:
    d = Driver("a")
    d.loaded("a", slots=2)
    keys = [d.ask("a") for _ in range(3)]
    late = d.ask("a")
    assert d.granted() == []
    assert d.seen(a.QueueLease) == [a.QueueLease(late, 1)]
    d.release(keys[1])
    assert d.granted() == [late]


def test_a_configured_limit_counts_instead() -> None:
    d = Driver(ModelEntry("a", concurrency_limit=1))
    d.loaded("a", slots=4)
    d.ask("a")
    d.ask("a")
    assert d.granted() == []


def test_of_fifty_at_a_limit_of_five_the_rest_is_refused_at_once() -> None:
    d = Driver(ModelEntry("a", concurrency_limit=1), max_queued=5)
    d.loaded("a", slots=1)
    refused = 0
    for _ in range(50):
        d.ask("a")
        refused += len(d.seen(a.RefuseLease))
    assert refused == 44, "one runs, five wait"
    view = d.scheduler.model_view("a")
    assert view is not None
    assert view.waiting == 5


def test_a_hundred_of_one_client_do_not_hold_back_one_of_another() -> None:
    d = Driver("a")
    d.loaded("a", slots=1)
    running = [d.ask("a", client="x") for _ in range(2)]
    for _ in range(100):
        d.ask("a", client="x")
    mine = d.ask("a", client="y")
    d.release(running[0])
    first = d.granted()
    d.release(running[1])
    assert mine in [*first, *d.granted()]


def test_all_who_waited_for_a_load_are_served_in_turns() -> None:
    d = Driver("a")
    first = d.ask("a", client="x")
    second = d.ask("a", client="x")
    other = d.ask("a", client="y")
    d.ready("a", slots=1)
    assert d.granted() == [first, other]
    d.release(first)
    assert d.granted() == [second]


def test_waiters_of_a_model_that_drains_stand_behind_the_one_it_drains_for() -> None:
    d = Driver("a", "b", models_max=1, drain_after_s=30)
    d.loaded("a", slots=1)
    running = [d.ask("a") for _ in range(2)]
    waiting = d.ask("a")
    d.ask("b")
    d.wait(31)
    for key in running:
        d.release(key)
        assert d.granted() == []
    assert d.asked_to_exit() == ["a"]
    d.exit("a")
    assert d.spawned() == ["b"]
    assert list(d.scheduler.state.queue) == ["a"]
    d.ready("b", slots=1)
    b_lease = d.granted()
    d.release(b_lease[0])
    d.exit("b")
    d.ready("a", slots=1)
    assert d.granted() == [waiting]


def test_those_in_line_are_no_use_of_an_idle_model_but_keep_it() -> None:
    d = Driver("a", "b", models_max=1)
    d.loaded("a", slots=1)
    keys = [d.ask("a") for _ in range(3)]
    d.ask("b")
    for key in keys[:2]:
        d.release(key)
    assert d.seen(a.AskExit) == [], "the third runs"
    assert d.state("a") is State.LOADED
    d.release(keys[2])
    assert d.asked_to_exit() == ["a"]


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.booleans()), max_size=60))
def test_turns_are_fair_and_each_clients_own_order_holds(moves: list[tuple[str, bool]]) -> None:
    waiters, queued, served = Waiters(), {"x": [], "y": [], "z": []}, []
    for number, (client, take) in enumerate(moves):
        if take:
            waiting = [c for c, keys in queued.items() if keys]
            key = waiters.next_lease()
            if key is None:
                assert not waiting
                continue
            owner = next(c for c, keys in queued.items() if keys and keys[0] == key)
            queued[owner].pop(0)
            served.append((owner, set(waiting)))
        else:
            key = LeaseKey(1, number)
            queued[client].append(key)
            waiters.add(key, float(number), client)
    assert list(waiters) == sorted(key for keys in queued.values() for key in keys)
    for (owner, waiting), (following, _) in pairwise(served):
        assert following != owner or waiting == {owner}, "nobody goes twice while another waits all the time"


def test_waiters_are_found_by_age_and_operators_apart() -> None:
    waiters = Waiters()
    waiters.add(LeaseKey(1, 1), 1.0, "x")
    waiters.add(Ticket(7), 2.0)
    waiters.add(LeaseKey(1, 2), 3.0, "x")
    assert waiters.tickets() == [Ticket(7)]
    assert [waiter.who for waiter in waiters.overdue(10.0, 12.0)] == [LeaseKey(1, 1), Ticket(7)]
    assert waiters.oldest is not None
    waiters.remove(LeaseKey(1, 1))
    assert waiters.oldest.who == Ticket(7)
    assert waiters.next_lease() == LeaseKey(1, 2)
    assert waiters.next_lease() is None
    assert len(waiters) == 1
