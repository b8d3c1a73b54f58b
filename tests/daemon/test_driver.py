"""Events in order, actions in order, deadlines as timers."""

from __future__ import annotations

from dataclasses import dataclass, field

from llamad.core.actions import Action, Note
from llamad.core.events import ChildExited, ChildNotSpawned, ChildReady, ClockTicked, Event
from llamad.core.view import SchedulerView
from llamad.daemon.driver import Driver
from llamad.daemon.loop import Loop
from tests.daemon.parts import HandClock


@dataclass
class ScriptedScheduler:
    """Answers each kind of event with what the test laid out, and remembers what it was told and when."""

    answers: dict[type, list[Action]] = field(default_factory=dict)
    deadline: float | None = None
    seen: list[tuple[str, float]] = field(default_factory=list)

    def step(self, event: Event, now: float) -> list[Action]:
        self.seen.append((type(event).__name__, now))
        return self.answers.get(type(event), [])

    def next_deadline(self) -> float | None:
        return self.deadline

    def view(self) -> SchedulerView:
        raise NotImplementedError

    def resolve(self, name: str) -> str | None:
        return name


def bench(scheduler: ScriptedScheduler) -> tuple[HandClock, Loop, Driver]:
    clock = HandClock()
    loop = Loop(clock)
    return clock, loop, Driver(loop, scheduler)


def test_an_event_that_an_action_causes_waits_for_the_rest_of_the_actions() -> None:
    scheduler = ScriptedScheduler({ChildReady: [Note("first", "", ""), Note("second", "", "")]})
    _, loop, driver = bench(scheduler)
    order: list[str] = []

    def perform(note: Note) -> None:
        order.append(note.kind)
        if note.kind == "first":
            driver.post(ChildNotSpawned(1, ""))
            order.append("posted")

    driver.performs(Note, perform)
    driver.post(ChildReady(1))
    assert order == ["first", "posted", "second"]
    assert [name for name, _ in scheduler.seen] == ["ChildReady", "ChildNotSpawned"]
    loop.close()


def test_the_deadline_becomes_a_tick() -> None:
    scheduler = ScriptedScheduler(deadline=1005.0)
    clock, loop, driver = bench(scheduler)
    driver.post(ChildReady(1))
    loop.run_once(0)
    assert len(scheduler.seen) == 1
    clock.now = 1005.0
    scheduler.deadline = None
    loop.run_once(0)
    assert scheduler.seen[-1] == ("ClockTicked", 1005.0)
    clock.now = 2000.0
    loop.run_once(0)
    assert len(scheduler.seen) == 2
    loop.close()


def test_a_nearer_deadline_replaces_the_timer_and_a_farther_one_does_not() -> None:
    scheduler = ScriptedScheduler(deadline=1010.0)
    clock, loop, driver = bench(scheduler)
    driver.post(ChildReady(1))
    scheduler.deadline = 1002.0
    driver.post(ChildReady(1))
    scheduler.deadline = 1020.0
    driver.post(ChildExited(1, 0))
    clock.now = 1002.0
    loop.run_once(0)
    assert scheduler.seen[-1] == (ClockTicked.__name__, 1002.0)
    clock.now = 1020.0
    loop.run_once(0)
    assert scheduler.seen[-1] == (ClockTicked.__name__, 1020.0)
    assert [name for name, _ in scheduler.seen].count("ClockTicked") == 2
    loop.close()
