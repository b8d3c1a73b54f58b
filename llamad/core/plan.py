"""What loading a model now would do, without doing it.

The answer comes from the scheduler itself: a copy of its state is given the order, and played on in a calm world, in
which whoever is evicted leaves at once, gives back what it held, and nobody else does anything. So a plan cannot differ
from what would be done; it can only be overtaken by what happens meanwhile.

The copy has only what takes part: models with a process, those in the queue, and the one that is asked about. Of those
who wait for a model it has the first.
"""

from __future__ import annotations

from collections import deque
from copy import copy, deepcopy
from dataclasses import dataclass, fields
from typing import Any

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import Amounts
from llamad.core.ledger import Ledger, added, short_of
from llamad.core.model import Model, State
from llamad.core.queue import Queue
from llamad.core.room import need_of
from llamad.core.scheduler import Scheduler
from llamad.core.state import Deadline, SchedulerState, Timer
from llamad.core.timers import Timers
from llamad.core.waiters import Waiters

_TICKET = -1
"""No operator has a negative one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an order to load would do. Amounts are bytes by device; `processes` is a device, too.

    `outcome`: `serves` (it is loaded), `loads`, `measures` (first, the rest shows then), `evicts` (`evictions` leave in
    this order, then it loads), `drains` (in `drain_after_s` seconds `drains` take no new requests), `waits` (for
    `leaving`, or for those ahead of it at `position`), `refused` (`message` says why).
    `need` is the least it needs beside what it holds, `available` what is there for it (with what gone processes are
    about to give back), `short` what is missing before anybody leaves.
    """

    model: str
    outcome: str
    message: str
    need: Amounts
    available: Amounts
    short: Amounts
    evictions: tuple[str, ...] = ()
    drains: tuple[str, ...] = ()
    drain_after_s: float | None = None
    leaving: tuple[str, ...] = ()
    position: int = 0


def plan(s: SchedulerState, name: str, now: float) -> Plan:
    """`name` is a model's id. `s` is not changed."""
    play = _Play(s, name, now)
    play.run()
    model = s.models[name]
    need = {} if model.serving else need_of(s, model)
    available = added(s.ledger.available(), s.ledger.departing())
    return Plan(
        model=name,
        outcome=play.outcome,
        message=play.message or _words(play, model),
        need=need,
        available={device: available[device] for device in need if device in available},
        short=short_of(need, available),
        evictions=tuple(play.evictions),
        drains=tuple(play.drains),
        drain_after_s=play.drain_after_s,
        leaving=tuple(s.leaving) if play.outcome == "waits" else (),
        position=play.position,
    )


class _Play:
    """One copy, played until it is clear what becomes of the order."""

    def __init__(self, s: SchedulerState, name: str, now: float) -> None:
        self._scheduler = Scheduler()
        self._scheduler.state = self._s = _sketch(s, name)
        self._name = name
        self._now = now
        self._left = set(s.evicting)
        self._events: deque[e.Event] = deque([e.LoadAsked(_TICKET, name)])
        self.outcome = ""
        self.message = ""
        self.evictions: list[str] = []
        self.drains: list[str] = []
        self.drain_after_s: float | None = None
        self.position = 0

    def run(self) -> None:
        self._settle()
        if self.outcome:
            if self.outcome == "loads" and self.evictions:
                self.outcome = "evicts"
            return
        self.position = self._s.queue.position(self._name) if self._name in self._s.queue else 0
        if not self.evictions:
            self._wait_for_drain()
        self.outcome = "evicts" if self.evictions else "drains" if self.drains else "waits"

    def _settle(self) -> None:
        """Until nothing more follows. Each model leaves once at most, so this ends."""
        while self._events and not self.outcome:
            for action in self._scheduler.step(self._events.popleft(), self._now):
                self._follow(action)

    def _wait_for_drain(self) -> None:
        """What else time alone would do is for another plan, when it has come."""
        before = set(self._s.draining)
        at = self._s.timers.get(Timer(Deadline.DRAIN))
        if at is not None:
            after_s = max(0.0, at - self._now)
            self._now += after_s
            self._events.append(e.ClockTicked())
            self._settle()
            self.drains = [name for name in self._s.draining if name not in before]
            self.drain_after_s = after_s if self.drains else None

    def _follow(self, action: a.Action) -> None:
        match action:
            case a.ReadMemory():
                # Everybody has given back what was held: the books are right.
                devices = self._s.ledger.memories()
                readings = tuple(e.DeviceReading(device.name, device.total, None) for device in devices)
                self._events.append(e.MemoryRead(readings))
            case a.AskExit(child) | a.Kill(child):
                self._leaves(child)
            case a.Spawn(model=model) | a.Measure(model=model) if model == self._name:
                self.outcome = "measures" if isinstance(action, a.Measure) else "loads"
            case a.Wake(child) if self._s.children.get(child) == self._name:
                self.outcome = "loads"
            case a.AnswerTicket(ticket, kind) if ticket == _TICKET:
                self.outcome, self.message = "refused" if kind else "serves", action.message

    def _leaves(self, child: int) -> None:
        victim = self._s.children[child]
        if victim in self._s.evicting and victim not in self._left:
            self._left.add(victim)
            if self._s.evicting[victim] == self._name:
                self.evictions.append(victim)
            self._events.append(e.ChildExited(child, 0))


def _words(play: _Play, model: Model) -> str:
    """One line for people."""
    match play.outcome:
        case "serves":
            return "it is loaded"
        case "measures":
            return "it is measured first: what it needs is not known yet"
        case "loads":
            return "it wakes up" if model.state is State.SLEEPING else "it loads at once"
        case "evicts":
            return f"it loads when {_names(play.evictions)} {_have(play.evictions)} left"
        case "drains":
            soon = f" in {play.drain_after_s:.0f} s" if play.drain_after_s else ""
            return f"it waits until {_names(play.drains)} {_have(play.drains)} no more requests, closed for new ones{soon}"
    if model.resident or model.state is State.MEASURING:
        return f"it waits: it is {model.state.value}"
    return f"it waits at position {play.position} of the queue"


def _names(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _have(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"


# ---- the copy


def _sketch(s: SchedulerState, name: str) -> SchedulerState:
    """A state that can be played on. What is added to SchedulerState one day is copied by its kind."""
    taking_part = [
        m for m in s.models.values() if m.name == name or m.state is not State.UNLOADED or m.name in s.queue
    ]
    names = {model.name for model in taking_part}
    parts: dict[str, Any] = {
        field.name: _part(getattr(s, field.name)) for field in fields(s) if field.name != "models"
    }
    parts["models"] = {model.name: _model(model) for model in taking_part}
    parts["names"] = {alias: target for alias, target in s.names.items() if target in names}
    parts["actions"] = []
    parts["reading"] = False
    return SchedulerState(**parts)


def _part(value: Any) -> Any:
    if isinstance(value, Ledger | Queue | Timers):
        return deepcopy(value)
    return copy(value) if isinstance(value, dict | list | set) else value


def _model(model: Model) -> Model:
    twin = copy(model)
    for field in fields(model):
        setattr(twin, field.name, _part(getattr(model, field.name)))
    twin.waiters = Waiters()
    if (first := model.waiters.oldest) is not None:
        twin.waiters.add(first.who, first.since, first.client)
    return twin
