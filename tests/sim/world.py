"""A random world around a Scheduler: clients, workers, operators, devices and processes that misbehave, in virtual time.

One seed is one world, repeatable step by step. Everything the scheduler asks for is checked when it asks, its own
invariants and the promises of `promises` after each step, and at the end that nobody was forgotten. A seed that failed
once belongs in `test_world.py`'s list for good.

Some worlds are calm: everything works in them, so everybody is served, and in bounded time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.scheduler import Scheduler
from tests.sim.agenda import Agenda
from tests.sim.clients import Clients
from tests.sim.memory import Memory
from tests.sim.operators import Operators
from tests.sim.processes import KILL_TAKES_S, Processes
from tests.sim.promises import Promises
from tests.sim.transcript import Transcript

CALM_SHARE = 0.2
PACES_S = (0.01, 0.3, 3.0, 30.0)


class World:
    """`chaos` scales how often things go wrong; 0 is a calm world."""

    def __init__(
        self, seed: int, *, chaos: float | None = None, models: int | None = None, digests: bool = False
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        drawn = 0.0 if self.rng.random() < CALM_SHARE else 1.0
        self.chaos = drawn if chaos is None else drawn * chaos
        self.calm = self.chaos == 0.0
        self.brisk = self.rng.random() < 0.4
        self.names = [f"m{i}" for i in range(models or self.rng.choice([2, 6, 6, 10]))]
        self.agenda = Agenda()
        self.steps = 0
        self.seen: Counter[str] = Counter()
        self.transcript = Transcript(digests=digests)
        self.stopping_from: float | None = None
        self.scheduler = Scheduler()
        self.memory = Memory(self)
        self.operators = Operators(self)
        self.processes = Processes(self)
        self.clients = Clients(self)
        self.promises = Promises(self)
        self._carried_out_by = self._carriers()
        self.step(e.ModelsConfigured(self.operators.entries, self.operators.limits, starting=True))

    def _carriers(self) -> dict[type[Any], Callable[[Any], None]]:
        processes, clients = self.processes, self.clients
        return {
            a.Spawn: processes.spawn,
            a.Measure: processes.measure,
            a.Sleep: processes.sleep,
            a.Wake: processes.wake,
            a.AskExit: processes.ask_exit,
            a.Terminate: processes.terminate,
            a.Kill: processes.kill,
            a.ReadMemory: lambda _: self.memory.read(),
            a.QueueLease: clients.queued,
            a.GrantLease: clients.granted,
            a.RefuseLease: clients.refused,
            a.EndLease: clients.ended,
            a.AnswerTicket: self.operators.answered,
            a.Note: lambda _: None,
            a.Finish: lambda _: None,
        }

    # ---- time

    @property
    def now(self) -> float:
        return self.agenda.now

    @property
    def stopping(self) -> bool:
        return self.stopping_from is not None

    def later(self, after_s: float, happen: Callable[[], None]) -> None:
        self.agenda.later(after_s, happen)

    def run_until(self, at: float) -> None:
        """Let everything happen that is due, with the scheduler's own ticks between."""
        while True:
            tick, happening = self.scheduler.next_deadline(), self.agenda.next()
            due = min((t for t in (tick, happening) if t is not None), default=None)
            if due is None or due > at:
                break
            self.agenda.move(due)
            if happening is not None and happening <= self.now:
                self.agenda.pop()()
            else:
                self._tick()
        self.agenda.move(at)

    def _tick(self) -> None:
        """The shell's timer: now and then a little late."""
        if not self.calm and self.rng.random() < 0.02:
            self.agenda.move(self.now + self.rng.uniform(0, 0.2))
        self.step(e.ClockTicked())

    # ---- one step, checked

    def step(self, event: e.Event) -> None:
        self.promises.before(event)
        actions = self.scheduler.step(event, self.now)
        self.steps += 1
        self.transcript.add(self.steps, self.now, event, actions)
        self.promises.answered(event, actions)
        for action in actions:
            self.seen[type(action).__name__] += 1
            self.promises.check(action)
            self._carried_out_by[type(action)](action)
        self.promises.after(event)

    # ---- a whole life

    def live(self, happenings: int) -> None:
        """That many random happenings, close together or far apart by turns."""
        pace_s = 1.0
        for _ in range(happenings):
            if self.rng.random() < 0.02:
                pace_s = self.rng.choice(PACES_S)
            self.run_until(self.now + self.rng.expovariate(1 / pace_s))
            if self.calm or self.rng.random() < 0.9:
                self.clients.ask_something()
            else:
                self._disturb()

    def _disturb(self) -> None:
        happenings: tuple[tuple[float, Callable[[], None]], ...] = (
            (1.0, self.clients.lose_worker),
            (2.0, self.clients.repeat),
            (2.0, self.clients.follow),
            (3.0, self.operators.order),
            (1.0, self.operators.reload),
            (1.0, self.operators.pin),
            (0.5, self.operators.doubt),
            (2.0, self.memory.disturb),
            (0.5, self.memory.lose_or_find),
            (0.5, self.memory.read_unasked),
            (0.5, self._leap),
            (0.5, lambda: self.step(e.ClockTicked())),
        )
        weights = [weight for weight, _ in happenings]
        (chosen,) = self.rng.choices([happening for _, happening in happenings], weights)
        chosen()

    def _leap(self) -> None:
        """Hours pass in a moment, for a machine that was suspended."""
        self.seen["leap"] += 1
        self.agenda.leap(self.rng.uniform(1, 6 * 3600))

    def settle(self) -> None:
        """Without new happenings everybody is answered, whoever waits for whatever."""
        for _ in range(100):
            self.run_until(self.now + 1000)
            if not self.clients.waiting and not self.operators.tickets:
                break
        self.promises.settled()

    def longest_wait_s(self) -> float:
        """Of all answered requests."""
        return max((lease.waited_s for lease in self.clients.leases.values()), default=0.0)

    def stop(self, within_s: float = 30.0) -> None:
        """The daemon stops: everything ends, in bounded time."""
        self.stopping_from = self.now + within_s
        self.step(e.StopAsked(self.stopping_from))
        for _ in range(5):
            self.clients.ask_something()
        self.run_until(self.stopping_from + 10.0 + KILL_TAKES_S + 1.0)
        self.promises.stopped()


def lives(seed: int, *, chaos: float | None = None, happenings: int = 400, digests: bool = False) -> World:
    """A world of that seed, from its beginning to its end."""
    world = World(seed, chaos=chaos, digests=digests)
    world.live(happenings)
    world.settle()
    world.stop()
    return world
