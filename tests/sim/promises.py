"""What the scheduler promises, checked against the world and not against its own books.

`check` looks at one action before it is carried out, `answered` at all of a step together, `after` at the world when
they are carried out. The first broken promise ends the world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.invariants import broken
from tests.sim.failures import Failures
from tests.sim.rooms import Rooms
from tests.sim.waits import Waits

if TYPE_CHECKING:
    from tests.sim.world import World

EPSILON_S = 1e-6
MEASURE_AT_ONCE_MAX = 2
SUSPECT_AFTER_S = 1.0
NOTES = {
    a.Spawn: {"load"},
    a.Wake: {"wake"},
    a.Sleep: {"sleep"},
    a.Measure: {"measure"},
    a.AskExit: {"stop"},
    a.Terminate: {"stop"},
    a.Kill: {"stop", "give-up", "measure-dropped"},
}
"""Each of these decisions is told together with a note of one of these kinds about the same model."""
NOTED_REFUSALS = ("does-not-fit", "all-pinned")


class Broken(AssertionError):
    """The scheduler did something it never may, or did not do what it must."""


class Promises:
    def __init__(self, world: World) -> None:
        self.w = world
        self.event: e.Event = e.ClockTicked()
        self.finished = False
        self.ordered: set[str] = set()
        """Models that somebody has ordered loaded since they last were."""
        self.failures = Failures(self)
        self.rooms = Rooms(self)
        self.waits = Waits(self)
        self._suspected: dict[int, float] = {}
        """When somebody first asked for another process than this one."""
        self._loads: dict[int, tuple[str, float]] = {}
        """Orders to load that are not answered: the model, and when."""
        self._actions_max = 0
        self._checks: dict[type[Any], Callable[[Any], None]] = {
            a.Spawn: self._spawn,
            a.Wake: self._wake,
            a.Measure: self._measure,
            a.Sleep: self._sleep,
            a.AskExit: self._ask_exit,
            a.Terminate: self._terminate,
            a.Kill: self._kill,
            a.QueueLease: self._queue,
            a.GrantLease: self._grant,
            a.RefuseLease: self._refuse,
            a.EndLease: self._end,
            a.AnswerTicket: self._answer,
            a.Note: self._note,
            a.Finish: self._finish,
        }

    def require(self, condition: bool, message: str) -> None:
        if not condition:
            raise Broken(f"seed {self.w.seed}, step {self.w.steps}, at {self.w.now:.3f}: {message}")

    # ---- around a step

    def before(self, event: e.Event) -> None:
        self.event = event
        held = sum(map(len, self.w.clients.holding.values()))
        concerned = len(self.w.clients.waiting) + held + len(self.w.operators.tickets)
        self._actions_max = 20 + 10 * len(self.w.names) + 3 * concerned
        match event:
            case e.LoadAsked():
                self.ordered.add(event.model)
                self._loads[event.ticket] = (event.model, self.w.now)
            case e.TicketDropped():
                self._loads.pop(event.ticket, None)
            case e.LeaseAsked() if event.avoid:
                if self.w.processes.all[event.avoid].ready:
                    self._suspected.setdefault(event.avoid, self.w.now)
                else:  # who does not serve is not sent anybody to anyway
                    self.w.clients.leases[event.key].avoid = 0
            case e.UnloadAsked():
                self.ordered.discard(event.model)
            case e.ModelsConfigured():
                self.ordered &= {entry.name for entry in event.models}
                if event.starting:
                    self.ordered |= {entry.name for entry in event.models if entry.load_on_startup}
        self.failures.before(event)
        self.rooms.before(event)

    def answered(self, event: e.Event, actions: Sequence[a.Action]) -> None:
        """All actions of the step together: their number is bounded, and each decision has its note."""
        self.require(len(actions) <= self._actions_max, f"{len(actions)} actions in one step")
        told: dict[str, set[str]] = {}
        for action in actions:
            if isinstance(action, a.Note):
                told.setdefault(action.model, set()).add(action.kind)
        for action in actions:
            self._told(action, told)
        self.rooms.overcommits = {model for model, kinds in told.items() if "overcommit" in kinds}

    def _told(self, action: a.Action, told: dict[str, set[str]]) -> None:
        kinds = NOTES.get(type(action))
        if kinds is not None:
            model = getattr(action, "model", None) or self.w.processes.all[action.child].model  # type: ignore[union-attr]
            self.require(bool(told.get(model, set()) & kinds), f"no note about {action}")
        elif isinstance(action, a.RefuseLease) and action.kind in NOTED_REFUSALS:
            model = self.w.clients.leases[action.key].model
            self.require("refuse" in told.get(model, ()), f"no note about {action}")

    def check(self, action: a.Action) -> None:
        """Just before it is carried out."""
        if (look := self._checks.get(type(action))) is not None:
            look(action)

    def after(self, event: e.Event) -> None:
        self.require(not (found := broken(self.w.scheduler.state)), "; ".join(found))
        self.rooms.after()
        self.waits.after(event)
        if isinstance(event, e.ChildExited | e.ChildNotSpawned):
            held = self.w.clients.holding.pop(event.child, {})
            self.require(not held, f"{list(held)} are held on a process that is gone, and nobody told them")

    # ---- processes

    def _spawn(self, action: a.Spawn) -> None:
        w = self.w
        self.require(action.child not in w.processes.all, "a child number was used twice")
        self.require(w.processes.of(action.model) is None, f"a second process of {action.model}")
        self.require(not w.stopping, f"{action.model} was started while the daemon stops")
        self._require_wanted(action.model)
        self.failures.spawning(action.model)
        self.rooms.spawning(action)
        self.waits.spawning(action.model)

    def _wake(self, action: a.Wake) -> None:
        process = self.w.processes.all[action.child]
        self.require(process.asleep and not process.leaving, "a process was woken that does not sleep")
        self._require_wanted(process.model)
        self.rooms.waking(process)

    def _require_wanted(self, model: str) -> None:
        ordered = model in self.ordered or bool(self.load_orders(model))
        wanted = ordered or bool(self.w.clients.waiters(model))
        self.require(wanted, f"{model} is loaded for nobody")

    def load_orders(self, model: str) -> list[float]:
        """When each of the orders to load it was given that are not answered yet."""
        return [at for name, at in self._loads.values() if name == model]

    def _measure(self, action: a.Measure) -> None:
        w = self.w
        self.require(w.operators.limits.margin_bytes is not None, "measured though memory is not booked")
        self.require(w.processes.of(action.model) is None, f"{action.model} has a process and is measured")
        measuring = sum(process.measures for process in w.processes.live.values())
        self.require(measuring < MEASURE_AT_ONCE_MAX, f"{measuring} are being measured already")
        self._require_wanted(action.model)

    def _sleep(self, action: a.Sleep) -> None:
        process = self.w.processes.all[action.child]
        entry = self.w.operators.entry(process.model)
        self.require(process.ready and not process.leaving, "a process sleeps that does not serve")
        self.require(
            not self.w.clients.users(action.child), f"{process.model} sleeps in the middle of a request"
        )
        idle_s = self.w.now - process.used_at
        self.require(
            entry is not None and 0 < entry.sleep_idle_s <= idle_s + EPSILON_S,
            f"{process.model} sleeps after {idle_s:.3f} s without use",
        )

    def _ask_exit(self, action: a.AskExit) -> None:
        process = self.w.processes.all[action.child]
        self.require(not process.leaving and not process.gone, f"{process.model} was asked to leave twice")
        busy = bool(self.w.clients.users(action.child))
        self.require(not busy or self._late(), f"a busy process of {process.model} was asked to leave")

    def _late(self) -> bool:
        """The daemon stops, and its time is up."""
        return self.w.stopping_from is not None and self.w.now >= self.w.stopping_from

    def _terminate(self, action: a.Terminate) -> None:
        process = self.w.processes.all[action.child]
        self.require(process.asked_at is not None, f"{process.model} was terminated and not asked before")

    def _kill(self, action: a.Kill) -> None:
        """What serves is killed only on an order, when it hangs, or when it did not leave."""
        process = self.w.processes.all[action.child]
        forced = isinstance(self.event, e.UnloadAsked) and self.event.force
        fair = process.loading or process.measures or process.hangs or process.asked_at is not None or forced
        self.require(fair or self._late(), f"a healthy process of {process.model} was killed")

    # ---- leases and tickets

    def _queue(self, action: a.QueueLease) -> None:
        self.require(action.key in self.w.clients.waiting, f"{action.key} was queued and does not wait")
        self.require(action.position >= 1, "a position below 1")

    def _grant(self, action: a.GrantLease) -> None:
        lease = self.w.clients.leases[action.key]
        self._require_waiting(action.key)
        process = self.w.processes.all[action.child]
        entry = self.w.operators.entry(lease.model)
        self.require(
            process.model == lease.model == action.model, f"{lease.model} was asked, {action} granted"
        )
        self.require(not process.gone, f"granted on a process of {lease.model} that is gone")
        if isinstance(self.event, e.LeaseFollowed):
            return
        there = process.ready or (not lease.load and process.asleep)
        self.require(there, f"granted on a process of {lease.model} that does not serve")
        if not lease.load:
            return
        self.require(not process.leaving, f"granted on a process of {lease.model} that leaves")
        self.require(not process.draining, f"granted on a process of {lease.model} that drains")
        self.require(
            entry is not None and process.fingerprint == entry.fingerprint,
            f"granted on a process of {lease.model} with another configuration",
        )
        since_s = self.w.now - self._suspected.get(lease.avoid, float("-inf"))
        sure = lease.avoid != action.child or since_s >= SUSPECT_AFTER_S - EPSILON_S
        self.require(sure, f"{action.key} was sent at once to the process that it saw dying")
        if lease.slot:
            self.waits.granting(action.child, entry)

    def _require_waiting(self, key: e.LeaseKey) -> None:
        self.require(key in self.w.clients.waiting, f"{key} was answered twice, or after it left")

    def _refuse(self, action: a.RefuseLease) -> None:
        self._require_waiting(action.key)
        self.w.seen["refused " + action.kind] += 1
        proper = 400 <= action.status < 600 and action.message.startswith("cannot")
        self.require(proper and bool(action.kind), f"an answer of no use: {action}")
        self.failures.refusing(action)
        self.waits.refusing(action)

    def _end(self, action: a.EndLease) -> None:
        lease = self.w.clients.leases[action.key]
        self.require(lease.answered and not lease.over, f"{action.key} was ended and is not held")
        process = self.w.processes.all[lease.child]
        there = process.ready and not process.gone and not process.leaving
        self.require(not there, f"{action.key} was ended though its process is there")

    def _answer(self, action: a.AnswerTicket) -> None:
        self.require(action.ticket in self.w.operators.tickets, f"ticket {action.ticket} answered twice")
        order = self._loads.pop(action.ticket, None)
        if order is not None and action.kind != "queue-timeout":
            self.ordered.discard(order[0])
        self.require(not action.kind or action.message.startswith("cannot"), f"an answer of no use: {action}")

    # ---- notes

    def _note(self, action: a.Note) -> None:
        self.require(bool(action.text), "a note without words")
        self.w.seen["note " + action.kind] += 1
        self.failures.noted(action)
        self.rooms.noted(action)
        self.waits.noted(action)
        match action.kind:
            case "give-up" if process := self.w.processes.of(action.model):
                process.given_up = True
            case "stop" if process := self.w.processes.of(action.model):
                process.stopped = not process.given_up
            case "drain" | "drain-lifted" if process := self.w.processes.of(action.model):
                process.draining = action.kind == "drain"
        if action.kind in ("loaded", "drain-lifted", "skip", "refuse"):
            self.ordered.discard(action.model)

    # ---- the end

    def _finish(self, action: a.Finish) -> None:
        self.require(not self.finished, "finished twice")
        self.require(not self.w.processes.live, "finished before the last process")
        self.finished = True

    def settled(self) -> None:
        forgotten = [lease.key for lease in self.w.clients.waiting.values()]
        self.require(not forgotten, f"never answered: {forgotten}")
        self.require(not self.w.operators.tickets, f"tickets never answered: {self.w.operators.tickets}")

    def stopped(self) -> None:
        self.require(self.finished, "not finished within the stop limit")
        self.require(not self.w.scheduler.state.places, "leases are left after the end")
