"""Plans: each outcome by scenario, and that what is planned is what is then done."""

from __future__ import annotations

import pickle
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import ModelEntry
from llamad.core.model import State
from llamad.core.plan import Plan, plan
from tests.core.driver import Driver
from tests.core.test_memory import GIB, Machine


def planned(d: Driver, model: str) -> Plan:
    """The plan, after checking that asking for it changed nothing."""
    before = pickle.dumps(d.scheduler.state)
    found = plan(d.scheduler.state, model, d.now)
    assert pickle.dumps(d.scheduler.state) == before
    return found


def test_what_is_loaded_serves() -> None:
    d = Driver("a")
    d.loaded("a")
    found = planned(d, "a")
    assert (found.outcome, found.message, found.need) == ("serves", "it is loaded", {})


def test_with_room_it_loads_and_the_numbers_are_there() -> None:
    m = Machine("a", takes={"a": (1, 10)}, margin=2 * GIB)
    m.loaded("a")
    m.unload("a")
    m.exit("a")
    m.wait(3)
    found = planned(m, "a")
    assert (found.outcome, found.message) == ("loads", "it loads at once")
    assert found.need == {"processes": 1, "host": GIB, "gpu": 10 * GIB}
    assert found.available == {"host": 30 * GIB, "gpu": 22 * GIB}
    assert found.short == {}


def test_what_is_not_known_is_measured_first() -> None:
    m = Machine("a", takes={"a": (1, 10)})
    assert planned(m, "a").outcome == "measures"


def test_evictions_in_their_order() -> None:
    m = Machine("a", "b", "c", "big", takes={"a": (1, 8), "b": (1, 8), "c": (1, 8), "big": (1, 20)})
    m.loaded("big")
    m.unload("big")
    m.exit("big")
    for name in "cab":
        m.loaded(name)
        m.now += 1
    found = planned(m, "big")
    assert (found.outcome, found.evictions) == ("evicts", ("c", "a", "b"))
    assert found.message == "it loads when 'c', 'a', 'b' have left"
    assert found.short == {"gpu": 20 * GIB}


def test_busy_models_drain_when_it_has_waited() -> None:
    d = Driver("a", "b", models_max=1, drain_after_s=30)
    d.loaded("a")
    d.ask("a")
    found = planned(d, "b")
    assert (found.outcome, found.drains, found.drain_after_s) == ("drains", ("a",), 30.0)
    assert found.message == "it waits until 'a' has no more requests, closed for new ones in 30 s"


def test_one_that_waits_already_drains_in_the_rest_of_its_time() -> None:
    d = Driver("a", "b", models_max=1, drain_after_s=30)
    d.loaded("a")
    d.ask("a")
    d.ask("b")
    d.wait(20)
    assert planned(d, "b").drain_after_s == pytest.approx(10)
    d.wait(11)
    found = planned(d, "b")
    assert (found.outcome, found.position) == ("waits", 1), "the drain has begun"


def test_who_waits_for_whom() -> None:
    d = Driver("a", "b", "c", models_max=1)
    d.loaded("a")
    d.ask("b")
    found = planned(d, "c")
    assert (found.outcome, found.leaving, found.position) == ("waits", ("a",), 2)
    d.exit("a")
    assert planned(d, "b").message == "it waits: it is loading"


@pytest.mark.parametrize(
    ("takes", "kind"),
    [((1, 20), "'pinned' is pinned"), ((1, 30), "30.0 GiB needed on gpu, which has 24.0 GiB")],
)
def test_what_cannot_work_says_so(takes: tuple[int, int], kind: str) -> None:
    m = Machine(ModelEntry("pinned", pinned=True), "b", takes={"pinned": (1, 10), "b": takes})
    m.loaded("pinned")
    m.ask("b")
    found = planned(m, "b")
    assert (found.outcome, found.evictions) == ("refused", ())
    assert kind in found.message


def test_a_sleeper_wakes() -> None:
    m = Machine(ModelEntry("a", sleep_idle_s=10), takes={"a": (1, 12)})
    m.loaded("a")
    m.wait(11)
    m.step(e.ChildSlept(m.child("a"), {"host": GIB // 4, "gpu": 0}))
    found = planned(m, "a")
    assert (found.outcome, found.message) == ("loads", "it wakes up")
    assert found.need == {"processes": 0, "host": GIB * 3 // 4, "gpu": 12 * GIB}


# ---- planned is done


def random_world(seed: int) -> Machine:
    """Models of all sizes in all states, some pinned, some busy, some waited for."""
    rng = Random(seed)
    names = [f"m{i}" for i in range(rng.randrange(2, 8))]
    takes: dict[str, tuple[Any, Any]] = {
        n: (rng.uniform(0.5, 8), rng.choice([0, rng.uniform(1, 14)])) for n in names
    }
    entries = [ModelEntry(n, pinned=rng.random() < 0.15, sleep_idle_s=rng.choice([0, 0, 5])) for n in names]
    m = Machine(*entries, takes=takes, models_max=rng.choice([0, 1, 2, 4]), drain_after_s=rng.choice([0, 30]))
    keys: list[e.LeaseKey] = []
    for _ in range(rng.randrange(40)):
        name, what = rng.choice(names), rng.random()
        if what < 0.3:
            keys.append(m.ask(name))
        elif what < 0.5 and keys:
            m.release(keys.pop(rng.randrange(len(keys))))
        elif what < 0.6:
            m.load(name)
        elif what < 0.7:
            m.wait(rng.choice([0.2, 6, 31]))
        elif m.state(name) is State.LOADING:
            m.ready(name)
        elif m.state(name) in (State.STOPPING, State.LOADED) and what > 0.9:
            m.exit(name)
    m.wait(3)
    return m


def execute(m: Machine, model: str, foreseen: Plan) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Order the load, let whom it evicts leave at once, and say what came of it."""
    evictions: list[str] = []
    s = m.scheduler.state
    gone, draining = set(s.evicting), set(s.draining)
    measured = len(m.measured)
    ticket = m.load(model)
    actions = list(m.actions)
    if model in m.measured[measured:]:
        return "measures", (), ()
    while True:
        for action in actions:
            if isinstance(action, a.AnswerTicket) and action.ticket == ticket:
                return ("refused" if action.kind else "serves"), tuple(evictions), ()
        starts = [x for x in actions if isinstance(x, a.Spawn | a.Wake) and s.children.get(x.child) == model]
        if starts:
            return ("evicts" if evictions else "loads"), tuple(evictions), ()
        victim = next((name for name in s.evicting if name not in gone), None)
        if victim is None:
            break
        gone.add(victim)
        if s.evicting[victim] == model:
            evictions.append(victim)
        m.exit(victim)
        actions = list(m.actions)
    if evictions:
        return "evicts", tuple(evictions), ()
    drains = tuple(name for name in s.draining if name not in draining)
    if not drains and foreseen.drain_after_s:
        m.wait(foreseen.drain_after_s)
        drains = tuple(name for name in s.draining if name not in draining)
    return ("drains" if drains else "waits"), (), drains


def test_what_is_planned_is_done() -> None:
    outcomes = set()
    for seed in range(200):
        m = random_world(seed)
        for model in m.takes:
            foreseen = planned(m, model)
            done = execute(deepcopy(m), model, foreseen)
            assert (foreseen.outcome, foreseen.evictions) == done[:2], (seed, model)
            assert set(foreseen.drains) <= set(done[2]), (seed, model)
            outcomes.add(foreseen.outcome)
    assert outcomes == {"serves", "loads", "evicts", "drains", "waits", "refused", "measures"}
