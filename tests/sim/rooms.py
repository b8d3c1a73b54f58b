"""Promises about room: nothing is loaded that does not fit, and only those leave who may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.ledger import PROCESSES
from tests.sim.processes import Process

if TYPE_CHECKING:
    from tests.sim.promises import Promises

FRESH_S = 0.1
EPSILON_S = 1e-6


class Rooms:
    def __init__(self, promises: Promises) -> None:
        self.p = promises
        self.overcommits: set[str] = set()
        """Models of this step that are loaded though other programs hold what they need, and say so."""

        self.measured: dict[str, str] = {}
        """Models that were measured, and with which configuration."""

    # ---- room is there before it is given

    def before(self, event: e.Event) -> None:
        operators = self.p.w.operators
        match event:
            case e.ChildMeasured() if (process := self.p.w.processes.live.get(event.child)) is not None:
                entry = operators.entry(process.model)
                if entry is not None and entry.fingerprint == process.fingerprint and not process.leaving:
                    self.measured[process.model] = process.fingerprint
            case e.NeedDoubted():
                self.measured.pop(event.model, None)
            case e.ModelsConfigured():
                for name, fingerprint in list(self.measured.items()):
                    if (entry := operators.entry(name)) is None or entry.fingerprint != fingerprint:
                        del self.measured[name]

    def spawning(self, action: a.Spawn) -> None:
        w = self.p.w
        residents = sum(not process.measures for process in w.processes.live.values()) + 1
        most = w.operators.limits.models_max
        self.p.require(not most or residents <= most, f"{residents} processes, at most {most} allowed")
        if w.operators.limits.margin_bytes is None:
            self.p.require(action.reserved is None, f"memory is not booked, but {action}")
        elif action.reserved is None:
            self.p.require(
                action.model not in self.measured, f"{action.model} was measured and is loaded unchecked"
            )
        else:
            need = w.processes.needs[action.model]
            least = (action.placement or need).minimum
            known = action.placement is None or action.placement in need.placements
            self.p.require(known, f"{action.model} is put where it cannot be: {action.placement}")
            enough = all(action.reserved.get(name, 0) >= amount for name, amount in least.items())
            self.p.require(enough, f"{action.model} needs {least}, reserved are {action.reserved}")
            self._fits(action.model, dict(action.reserved))

    def waking(self, process: Process) -> None:
        if self.p.w.operators.limits.margin_bytes is not None:
            more = {name: n - process.claim.get(name, 0) for name, n in process.awake_claim.items()}
            self._fits(process.model, more)

    def _fits(self, model: str, promised: dict[str, int]) -> None:
        """As the devices are now, wherever the last look can have told so."""
        memory, margin = self.p.w.memory, self.p.w.operators.limits.margin_bytes or 0
        age_s = self.p.w.now - memory.read_at
        self.p.require(age_s <= FRESH_S + EPSILON_S, f"{model} got room by a look {age_s:.3f} s ago")
        if model in self.overcommits:
            return
        for device, amount in promised.items():
            if device not in memory.totals or amount <= 0 or not memory.known(device):
                continue
            left = memory.free(device) - memory.unused_promises(device) - margin - amount
            self.p.require(left >= 0, f"{model} got {amount} bytes of {device}, {-left} more than there are")

    # ---- who leaves

    def noted(self, note: a.Note) -> None:
        if note.kind == "evict":
            self._evicted(note)
        elif note.kind == "stop" and note.text.startswith("unloaded: not used for"):
            self._idled(note)
        elif note.kind == "drain" and "drains to make room" in note.text:
            self._drained(note)

    def _evicted(self, note: a.Note) -> None:
        """A victim is idle, or a load nobody waits for; it is not pinned, not wanted, and the longest unused."""
        self.p.w.seen["eviction"] += 1
        process = self._process(note.model)
        self.p.require(self._may_leave(process), f"victim {note.model} was busy, pinned or wanted")
        for other in self.p.w.processes.live.values():
            if other is not process and self._may_leave(other) and self._as_good(other, process):
                fair = _rank(process) <= _rank(other)
                self.p.require(fair, f"{note.model} left, but {other.model} was not used for longer")

    def _process(self, model: str) -> Process:
        process = self.p.w.processes.of(model)
        if process is None:
            self.p.require(False, f"{model} leaves, but has no process")
            raise AssertionError
        return process

    def _may_leave(self, process: Process) -> bool:
        model = process.model
        return not (
            process.measures
            or process.leaving
            or process.stopped
            or ((process.loading or process.asleep) and model in self.p.ordered)
            or self.p.w.clients.users(process.child)
            or self.p.w.clients.waiters(model)
            or self.p.w.operators.pinned(model)
        )

    def _as_good(self, other: Process, victim: Process) -> bool:
        """Whatever is short and `victim` holds some of, `other` does, too."""
        return victim.claim.keys() <= other.claim.keys() and not self._ordered_again(other)

    def _ordered_again(self, process: Process) -> bool:
        return process.model in self.p.w.operators.tickets.values()

    def _idled(self, note: a.Note) -> None:
        process, entry = self._process(note.model), self.p.w.operators.entry(note.model)
        idle_s = self.p.w.now - process.used_at
        self.p.require(not self.p.w.operators.pinned(note.model), f"{note.model} is pinned and was unloaded")
        self.p.require(
            entry is not None and 0 < entry.unload_idle_s <= idle_s + EPSILON_S,
            f"{note.model} was unloaded after {idle_s:.3f} s without use",
        )

    def _drained(self, note: a.Note) -> None:
        """Nobody is closed for one who has not waited long enough."""
        wanting = note.text.split("'")[1]
        process = self._process(note.model)
        self.p.require(process.ready, f"{note.model} drains and does not serve")
        self.p.require(not self.p.w.operators.pinned(note.model), f"{note.model} is pinned and drains")
        waited_s = self.p.w.now - self.p.waits.since(wanting)
        limit_s = self.p.w.operators.limits.drain_after_s
        self.p.require(
            waited_s >= limit_s - EPSILON_S, f"{note.model} drains for {waited_s:.3f} s of {wanting}"
        )

    # ---- the books

    def after(self) -> None:
        """They hold what the living were promised or said they take, and what the dead have not given back."""
        ledger = self.p.w.scheduler.state.ledger
        living = {c: p for c, p in self.p.w.processes.live.items() if not p.measures}
        holders = ledger.holders()
        self.p.require(
            holders.keys() == living.keys(), f"the books have {holders}, living are {list(living)}"
        )
        for child, process in living.items():
            held = ledger.held_by(child)
            claim = {PROCESSES: 1, **process.claim}
            self.p.require(held == claim, f"{process.model} has {claim}, the books say {held}")


def _rank(process: Process) -> tuple[int, float]:
    """Sleepers leave first, loads nobody waits for last; of each the longest unused."""
    if process.loading:
        return 2, 0.0
    return (0 if process.asleep else 1), process.used_at
