"""Promises about time: nobody waits beyond a bound, no process outstays its time, and nothing turns in circles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import ModelEntry
from tests.sim.clients import REQUEST_TAKES_S
from tests.sim.processes import EXIT_TAKES_S, LOAD_TAKES_S, MEASURE_TAKES_S, RELEASE_TAKES_S, Process

if TYPE_CHECKING:
    from tests.sim.promises import Promises

EPSILON_S = 1e-6
PRIORITY_STEP_S = 30.0
LAST_WORDS_S_MAX = 10.0
MEASURE_S_MAX = 60.0
WANTED_S = 2.0
"""An idle clock that ran out while somebody waited runs out again this soon after the last has given up."""
LATE_S = 1.0
"""Ticks of a chaotic world may be a little late."""
STEPS_A_SECOND_MAX = 100
REREAD_S = 1.0
TURN_S = REQUEST_TAKES_S + EXIT_TAKES_S + RELEASE_TAKES_S + MEASURE_TAKES_S + LOAD_TAKES_S + REREAD_S
"""The longest turn of another model, in a calm world, once somebody is overdue."""
CALM_REFUSALS = ("does-not-fit", "queue-full", "stopping")


class Waits:
    def __init__(self, promises: Promises) -> None:
        self.p = promises
        self.longest_calm_s = 0.0
        """The longest that an entry of the queue has waited in a calm world, and what it may."""
        self._since: dict[str, float] = {}
        self._wanted_before: dict[str, float] = {}
        """Since when somebody had waited for each model when the last step was over: who joins the queue in the very step
        in which they give up has their age."""
        self._joined: dict[str, float] = {}
        self._ranks: dict[str, tuple[float, float]] = {}
        """Of entries of the queue: since when they stand there, and when they would have come had all the same priority."""
        self._ways: dict[str, str] = {}
        """Who leaves, or drains, for whom: it queues behind that one."""
        self._second = 0
        self._own_steps = 0
        self._others = 0

    def since(self, model: str) -> float:
        """Since when it has been in the queue, or somebody has waited for it."""
        now = self.p.w.now
        known = (self._since.get(model, now), self._wanted_before.get(model, now))
        return min(*known, self._wanted_since(model))

    def _wanted_since(self, model: str) -> float:
        waiters = self.p.w.clients.waiters(model)
        asked_at = [lease.asked_at for lease in waiters] + self.p.load_orders(model)
        return min(asked_at, default=self.p.w.now)

    def bound_s(self) -> float:
        """For an entry of the queue of a calm world: its own time, those whom priority lets pass, all others' turns."""
        limits, priorities = self.p.w.operators.limits, [x.priority for x in self.p.w.operators.entries]
        head_start_s = (max(priorities) - min(priorities)) * PRIORITY_STEP_S
        return limits.drain_after_s + head_start_s + len(self.p.w.names) * TURN_S

    def granting(self, child: int, entry: ModelEntry | None) -> None:
        process = self.p.w.processes.all[child]
        limit = (entry.concurrency_limit if entry else 0) or (process.slots + 1 if process.slots else 0)
        running = sum(lease.slot and lease.uses for lease in self.p.w.clients.users(child))
        self.p.require(
            not limit or running < limit, f"{running} requests run on {process.model}, {limit} may"
        )

    def refusing(self, action: a.RefuseLease) -> None:
        if self.p.w.calm:
            lease = self.p.w.clients.leases[action.key]
            unloaded = action.kind == "model-not-loaded" and not (lease.load and lease.autoload is not False)
            fair = unloaded or action.kind in CALM_REFUSALS
            self.p.require(fair, f"refused though everything works: {action}")

    def _rank(self, model: str, since: float) -> tuple[float, float]:
        entry = self.p.w.operators.entry(model)
        return since, since - (entry.priority if entry else 0) * PRIORITY_STEP_S

    def noted(self, action: a.Note) -> None:
        match action.kind:
            case "drain" | "evict" | "stop" if wanting := action.numbers.get("wanting"):
                self._ways[action.model] = str(wanting)
            case "drain" | "drain-lifted" | "exited":
                self._ways.pop(action.model, None)

    def _enters(self, name: str, since: float, before: dict[str, tuple[float, float]]) -> tuple[float, float]:
        """Its rank: `before` has those of the last step."""
        _, rank = self._rank(name, since)
        way = self._ways.get(name, "")
        ahead = before.get(way) or self._ranks.get(way)
        return since, max(rank, ahead[1]) if ahead else rank

    def spawning(self, model: str) -> None:
        """Where only the number of processes is limited, the one that has waited longest goes first."""
        queue = self.p.w.scheduler.state.queue
        if self.p.w.operators.limits.margin_bytes is not None:
            return
        _, mine = self._ranks.get(model) or self._rank(model, self.since(model))
        for name, (since, rank) in self._ranks.items():
            if self.p.failures.retries(name):
                continue  # it waits for somebody to leave, room or not
            waits = name in queue and queue.since(name) == since and self.p.w.processes.of(name) is None
            self.p.require(not waits or rank >= mine - EPSILON_S, f"{model} is loaded before {name}")

    def _overdue(self) -> None:
        """Where only the number of processes is limited: for a head that has waited too long somebody drains, or leaves."""
        w, now = self.p.w, self.p.w.now
        limits, processes = w.operators.limits, w.processes.live.values()
        head = next(iter(w.scheduler.state.queue), None)
        full = sum(not process.measures for process in processes) == limits.models_max
        if head is None or w.processes.of(head) is not None:
            return  # one that is measured, or has to go before it comes, only keeps its place
        if limits.margin_bytes is not None or not full or self.p.failures.retries(head):
            return
        late = now - w.scheduler.state.queue.since(head) >= limits.drain_after_s + EPSILON_S
        busy = [p for p in processes if p.ready and not w.operators.pinned(p.model) and not p.leaving]
        leaving = any(process.leaving or process.draining or process.stopped for process in processes)
        self.p.require(not (late and busy) or leaving, f"{head} is overdue and nobody drains for it")

    # ---- after each step

    def asked(self, event: e.LeaseAsked) -> None:
        """Whoever is let in to wait found less than the most waiting."""
        waiting, most = self.p.w.clients.waiting, self.p.w.operators.limits.max_queued
        self.p.require(
            event.key not in waiting or len(waiting) <= most, f"{len(waiting)} wait, the most is {most}"
        )

    def after(self, event: e.Event) -> None:
        self._circles(event)
        self._queue()
        if isinstance(event, e.LeaseAsked):
            self.asked(event)
        tick = self.p.w.scheduler.next_deadline()
        if tick is not None and tick <= self.p.w.now:
            return  # the step has left something for another one at the same time
        self._waiters()
        if not self.p.w.stopping:
            self._overdue()
        for process in self.p.w.processes.live.values():
            if not self.p.w.stopping:
                self._idle(process)
            self._leaving(process)
            self._loading(process)

    def _waiters(self) -> None:
        limit_s = self.p.w.operators.limits.queue_timeout_s
        oldest = next(iter(self.p.w.clients.waiting.values()), None)
        if oldest is not None and limit_s:
            waited_s = self.p.w.now - oldest.asked_at
            self.p.require(waited_s < limit_s + EPSILON_S, f"{oldest.key} waits for {waited_s:.3f} s")

    def _queue(self) -> None:
        now, state = self.p.w.now, self.p.w.scheduler.state
        since, self._since = self._since, {}
        joined, self._joined = self._joined, {}
        ranks, self._ranks = self._ranks, {}
        for name in state.queue:
            known, entered_at = ranks.get(name), state.queue.since(name)
            self._ranks[name] = (
                known if known and known[0] == entered_at else self._enters(name, entered_at, ranks)
            )
            self._since[name] = since[name] if name in since else self.since(name)
            self._joined[name] = joined.get(name, now)
        self._wanted_before = {name: self._wanted_since(name) for name in self.p.w.names}
        self.p.require(
            bool(state.queue or state.stopping) or not state.draining, f"{[*state.draining]} drain for nobody"
        )
        if self.p.w.calm and self._joined:
            longest_s = now - min(self._joined.values())
            self.longest_calm_s = max(self.longest_calm_s, longest_s)
            self.p.require(longest_s <= self.bound_s(), f"an entry of the queue has waited {longest_s:.1f} s")

    def _idle(self, process: Process) -> None:
        """Whoever is idle for long enough sleeps, or is gone; only use of the model keeps it awake."""
        entry = self.p.w.operators.entry(process.model)
        idle = (process.ready or process.asleep) and not process.leaving
        if entry is None or not idle or not (entry.sleep_idle_s or entry.unload_idle_s):
            return
        if self.p.w.scheduler.state.models[process.model].wanted:
            process.wanted_at = self.p.w.agenda.awake_s
        lately = self.p.w.agenda.awake_s <= process.wanted_at + WANTED_S
        if lately or self.p.w.clients.users(process.child):
            return
        idle_s = self.p.w.now - process.used_at
        if process.ready and entry.sleep_idle_s:
            self.p.require(
                idle_s < entry.sleep_idle_s + EPSILON_S, f"{process.model} is awake after {idle_s:.1f} s"
            )
        if entry.unload_idle_s and not self.p.w.operators.pinned(process.model):
            self.p.require(
                idle_s < entry.unload_idle_s + EPSILON_S, f"{process.model} is there after {idle_s:.1f} s"
            )

    def _leaving(self, process: Process) -> None:
        """Who is asked to leave is gone, or killed, when its stop-timeout is over."""
        if process.asked_at is None or process.killed:
            return
        waited_s, entry = self.p.w.agenda.awake_s - process.asked_at, self.p.w.operators.entry(process.model)
        # A reload may change it, and with it the time until it is pressed harder.
        limit_s = process.stop_timeout_s = max(process.stop_timeout_s, entry.stop_timeout_s if entry else 0.0)
        self.p.require(
            waited_s <= limit_s + LATE_S,
            f"{process.model} was asked to leave {waited_s:.1f} s ago",
        )

    def _loading(self, process: Process) -> None:
        """A load without progress is given up; so is who does not exit as announced, or never ends measuring."""
        limit_s, now = self.p.w.operators.limits.load_timeout_s, self.p.w.agenda.awake_s
        if process.leaving:
            return
        if process.failed_at is not None:
            late_s = now - process.failed_at
            self.p.require(late_s <= LAST_WORDS_S_MAX + LATE_S, f"{process.model} failed {late_s:.1f} s ago")
        if process.measures:
            takes_s = now - process.progress_at
            self.p.require(
                takes_s <= MEASURE_S_MAX + LATE_S, f"{process.model} is measured for {takes_s:.1f} s"
            )
        if process.loading:
            self._abandoned(process)
        if not (process.loading and limit_s):
            return
        stuck_s = now - max(process.progress_at, self.p.w.operators.limited_at_s)
        self.p.require(
            stuck_s <= limit_s + LATE_S, f"{process.model} loads without progress for {stuck_s:.1f} s"
        )

    def _abandoned(self, process: Process) -> None:
        """A load that nobody waits for is dropped after its grace time."""
        wanted = process.model in self.p.ordered or self.p.load_orders(process.model)
        if wanted or self.p.w.clients.waiters(process.model):
            process.abandoned_at = None
            return
        process.abandoned_at = self.p.w.now if process.abandoned_at is None else process.abandoned_at
        alone_s, most_s = self.p.w.now - process.abandoned_at, self.p.w.operators.longest_abandon_s
        self.p.require(alone_s <= most_s + EPSILON_S, f"{process.model} loads for nobody for {alone_s:.1f} s")

    def _circles(self, event: e.Event) -> None:
        """Steps that the scheduler itself asks for are few in any second of virtual time."""
        second = int(self.p.w.now)
        if second != self._second:
            self._second, self._own_steps, self._others = second, 0, 0
        if isinstance(event, e.ClockTicked | e.MemoryRead):
            self._own_steps += 1
        else:
            self._others += 1
        most = STEPS_A_SECOND_MAX + 10 * self._others
        self.p.require(self._own_steps <= most, f"{self._own_steps} ticks and looks in one second")
