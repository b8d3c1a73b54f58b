"""Between the loop and the scheduler: events in, actions carried out, the next deadline as a timer.

Events are taken one at a time and in order, also those that come up while actions are being carried out: an action's own
consequence waits until the action list before it is done.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from llamad.core.actions import Action
from llamad.core.events import ClockTicked, Event
from llamad.core.plan import Plan, plan
from llamad.core.state import SchedulerState
from llamad.core.view import SchedulerView
from llamad.daemon.loop import Loop, Timer

log = logging.getLogger(__name__)

EVENTS_PENDING_MAX = 100_000


class Scheduler(Protocol):
    """What the shell needs of `llamad.core.scheduler.Scheduler`."""

    state: SchedulerState

    def step(self, event: Event, now: float) -> list[Action]: ...

    def next_deadline(self) -> float | None: ...

    def view(self) -> SchedulerView: ...

    def resolve(self, name: str) -> str | None: ...


class Driver:
    """The only one that steps the scheduler."""

    def __init__(self, loop: Loop, scheduler: Scheduler) -> None:
        self._loop = loop
        self._scheduler = scheduler
        self._performers: dict[type[Any], Callable[[Any], None]] = {}
        self._pending: deque[Event] = deque()
        self._draining = False
        self._timer: Timer | None = None

    def performs(self, action: type[Any], performer: Callable[[Any], None]) -> None:
        """`performer` carries out this kind of action. It must not raise."""
        self._performers[action] = performer

    def post(self, event: Event) -> None:
        """Give the scheduler an event. When this returns, it and its consequences are done, unless called from one."""
        if len(self._pending) >= EVENTS_PENDING_MAX:
            raise RuntimeError(f"cannot keep up: {EVENTS_PENDING_MAX} events of the scheduler are pending")
        self._pending.append(event)
        if self._draining:
            return
        self._draining = True
        try:
            while self._pending:
                for action in self._scheduler.step(self._pending.popleft(), self._loop.now()):
                    self._performers[type(action)](action)
        finally:
            self._draining = False
        self._arm()

    def view(self) -> SchedulerView:
        return self._scheduler.view()

    def resolve(self, name: str) -> str | None:
        return self._scheduler.resolve(name)

    def plan(self, model: str) -> Plan:
        """What loading `model` (an id) now would do."""
        return plan(self._scheduler.state, model, self._loop.now())

    def _arm(self) -> None:
        """An early tick is harmless, so a timer is only replaced when it would be late."""
        deadline = self._scheduler.next_deadline()
        if deadline is None or (
            self._timer is not None and self._timer.pending and self._timer.when <= deadline
        ):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.post(ClockTicked())
