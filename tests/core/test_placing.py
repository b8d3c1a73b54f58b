"""Two GPUs of unlike size: where models go, and who leaves for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import DeviceReading, ModelEntry, Need, Placement
from llamad.core.model import State
from tests.core.driver import Driver

GIB = 1 << 30
SIZES = {"host": 64 * GIB, "small": 8 * GIB, "large": 24 * GIB}


def either(gib: float) -> Need:
    """A model of `gib` GiB that may go on one of the two or be split in halves over both."""
    whole, half = int(gib * GIB), int(gib * GIB / 2)
    ways = [Placement((gpu,), {gpu: whole}, {gpu: whole}) for gpu in ("small", "large")]
    both = {"small": half, "large": half}
    return Need(both, both, (*ways, Placement(("small", "large"), both, both, (0.5, 0.5))))


class Machine(Driver):
    """`needs`: GiB by model, or a Need of its own."""

    def __init__(self, needs: dict[str, Any], **limits: Any) -> None:
        self.needs = {m: n if isinstance(n, Need) else either(n) for m, n in needs.items()}
        super().__init__(*needs, models_max=0, margin_bytes=0, **limits)

    def step(self, event: e.Event) -> list[a.Action]:
        actions = list(super().step(event))
        for action in list(actions):
            if isinstance(action, a.ReadMemory):
                actions += self.step(e.MemoryRead(self.read()))
            elif isinstance(action, a.Measure):
                actions += self.step(e.ChildMeasured(action.child, self.needs[action.model]))
                actions += self.step(e.ChildExited(action.child, 0))
        self.actions = actions
        return actions

    def read(self) -> tuple[DeviceReading, ...]:
        s, readings = self.scheduler.state, []
        for name, total in SIZES.items():
            ours = tuple((m.child, s.ledger.held_by(m.child).get(name, 0)) for m in s.residents())
            readings.append(DeviceReading(name, total, total - sum(n for _, n in ours), ours))
        return tuple(readings)

    def placed(self, model: str) -> tuple[str, ...]:
        view = self.scheduler.model_view(model)
        assert view is not None
        return view.devices


def test_the_tightest_device_that_has_room_is_taken() -> None:
    m = Machine({"a": 6, "b": 6, "c": 6})
    m.loaded("a")
    m.loaded("b")
    m.loaded("c")
    assert (m.placed("a"), m.placed("b"), m.placed("c")) == (("small",), ("large",), ("large",))


def test_it_is_split_only_when_it_fits_on_neither_alone() -> None:
    m = Machine({"a": 15, "b": 15})
    m.loaded("a")
    assert m.placed("a") == ("large",)
    m.load("b")
    (spawn,) = m.seen(a.Spawn)
    assert spawn.placement is not None
    assert spawn.placement.devices == ("small", "large")
    assert spawn.placement.split == (0.5, 0.5)
    assert spawn.reserved == {"small": int(7.5 * GIB), "large": int(7.5 * GIB)}


def test_one_device_that_idle_models_would_leave_is_better_than_a_split() -> None:
    m = Machine({"a": 7, "b": 20, "c": 8})
    m.loaded("a")
    m.now += 1
    m.loaded("b")
    assert (m.placed("a"), m.placed("b")) == (("small",), ("large",))
    m.ask("c")
    assert m.asked_to_exit() == ["a"], "8 GiB are left on the small one then, 24 on the large one"
    m.exit("a")
    assert m.spawned() == ["c"]
    assert m.placed("c") == ("small",)
    assert m.state("b") is State.LOADED


def test_a_way_that_only_pins_are_in_is_no_way() -> None:
    m = Machine({"a": 20, "b": 7, "c": 8})
    m.loaded("a")
    m.step(e.PinAsked(1, "a", pinned=True))
    m.loaded("b")
    m.ask("c")
    assert m.asked_to_exit() == ["b"], "the pinned one holds the large device"
    m.exit("b")
    assert m.placed("c") == ("small",)


def test_a_fixed_device_is_obeyed_or_refused() -> None:
    fixed = Need({"small": 6 * GIB}, {"small": 6 * GIB})
    too_large = Need({"small": 9 * GIB}, {"small": 9 * GIB})
    m = Machine({"a": fixed, "b": fixed, "c": too_large})
    m.loaded("a")
    m.ask("b")
    assert m.asked_to_exit() == ["a"], "the large device is free, but not for it"
    m.ask("c")
    assert m.refusal().kind == "does-not-fit"
    assert "9.0 GiB needed on small, which has 8.0 GiB" in m.refusal().message


def test_too_large_for_all_ways_is_refused() -> None:
    m = Machine({"a": 50})
    m.ask("a")
    assert m.refusal().kind == "does-not-fit"


def only_on(device: str, gib: int) -> Need:
    return Need({device: gib * GIB}, {device: gib * GIB})


def drains_for_want() -> Machine:
    """`want` lacks least on the large GPU, whose model has a priority and somebody who waits for its slot."""
    whole = replace(either(7), placements=either(7).placements[:2])
    m = Machine({"first": only_on("large", 20), "other": only_on("small", 8), "want": whole})
    limits = {"models_max": 0, "margin_bytes": 0, "drain_after_s": 30}
    m.configure(ModelEntry("first", priority=9), "other", "want", **limits)
    for busy in ("first", "other"):
        m.loaded(busy, slots=1)
        m.ask(busy)
    m.ask("first")
    m.ask("first")
    m.ask("want")
    m.wait(31)
    return m


def test_who_drains_queues_behind_the_one_it_drains_for_whatever_its_priority() -> None:
    m = drains_for_want()
    view = m.scheduler.view()
    assert [entry.model for entry in view.queue] == ["want", "first"]
    assert view.queue[0].draining == ("first",)
    m.ask("first")
    assert m.scheduler.view().queue[0].draining == ("first",), "and goes on draining, step by step"


def test_drains_go_on_for_the_way_chosen_while_no_other_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    m = drains_for_want()
    monkeypatch.setitem(SIZES, "small", 14 * GIB)  # others leave it: now it is the small one that lacks least
    m.wait(1)
    assert m.scheduler.view().queue[0].draining == ("first",)
    monkeypatch.setitem(SIZES, "small", 15 * GIB)
    m.wait(1)
    assert m.placed("want") == ("small",), "there it has room without anybody's leaving"
    assert m.scheduler.view().queue == ()
