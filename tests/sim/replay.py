"""Replays a log of requests against the scheduler, on a machine where everything works and takes the time given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import LeaseKey, Limits, ModelEntry
from llamad.core.scheduler import Scheduler
from tests.sim.agenda import Agenda
from tests.sim.trace import MODEL_REST, Needs, Request

SLEEP_TAKES_S = 0.5
KILL_TAKES_S = 0.1
WORKER = 1


@dataclass
class Tally:
    """What one model, or all of them, saw."""

    requests: int = 0
    loads: int = 0
    evictions: int = 0
    drains: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    """Of the requests that were served."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.requests + other.requests,
            self.loads + other.loads,
            self.evictions + other.evictions,
            self.drains + other.drains,
            self.refusals + other.refusals,
            self.waits_s + other.waits_s,
        )

    @property
    def refused(self) -> int:
        return self.refusals.total()

    @property
    def warm(self) -> int:
        """Requests that were served at once."""
        return sum(wait_s == 0.0 for wait_s in self.waits_s)

    def wait_s(self, share: float) -> float:
        """The wait that this share of the requests did not exceed; 1.0: none did."""
        ordered = sorted(self.waits_s)
        return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0


class Replay:
    """`devices`: name to bytes. Where memory is not booked they limit nothing."""

    def __init__(self, limits: Limits, needs: Mapping[str, Needs], devices: Mapping[str, int]) -> None:
        self._needs = needs
        self._devices = devices
        self._scheduler = Scheduler()
        self._limits = limits
        self._agenda = Agenda(0.0)
        self._model_of: dict[int, str] = {}
        self._held: dict[int, Mapping[str, int]] = {}
        self._asked: dict[LeaseKey, Request] = {}
        self.tallies: dict[str, Tally] = {}
        self.peaks: Counter[str] = Counter()
        """The most bytes of each device in use at once."""

    def run(self, requests: Sequence[Request]) -> None:
        """All of them, until the last is answered and over."""
        names = dict.fromkeys(request.model for request in requests)
        self.tallies = {name: Tally() for name in names}
        entries = tuple(self._entry(name) for name in names)
        self._step(e.ModelsConfigured(entries, self._limits, starting=True))
        for number, request in enumerate(requests):
            self._pass(request.time_s)
            self._ask(LeaseKey(WORKER, number), request)
        while self._asked and self._due() is not None:
            self._pass(self._agenda.now + 60.0)

    def _entry(self, name: str) -> ModelEntry:
        needs = self._of(name)
        return ModelEntry(
            name,
            pinned=needs.pinned,
            priority=needs.priority,
            sleep_idle_s=needs.sleep_idle_s,
            unload_idle_s=needs.unload_idle_s,
            concurrency_limit=needs.slots,
        )

    def _of(self, model: str) -> Needs:
        return self._needs.get(model) or self._needs[MODEL_REST]

    # ---- time

    def _due(self) -> float | None:
        both = (self._scheduler.next_deadline(), self._agenda.next())
        return min((at for at in both if at is not None), default=None)

    def _pass(self, until_s: float) -> None:
        while (due := self._due()) is not None and due <= until_s:
            self._agenda.move(due)
            happening = self._agenda.next()
            if happening is not None and happening <= self._agenda.now:
                self._agenda.pop()()
            else:
                self._step(e.ClockTicked())
        self._agenda.move(until_s)

    def _later(self, after_s: float, event: Callable[[], e.Event | None]) -> None:
        """`event` says what has happened by then, or that nothing has."""

        def happen() -> None:
            if (happened := event()) is not None:
                self._step(happened)

        self._agenda.later(after_s, happen)

    # ---- one step

    def _ask(self, key: LeaseKey, request: Request) -> None:
        self._asked[key] = request
        self.tallies[request.model].requests += 1
        self._step(e.LeaseAsked(key, request.model))

    def _step(self, event: e.Event) -> None:
        for action in self._scheduler.step(event, self._agenda.now):
            self._carry_out(action)

    def _carry_out(self, action: a.Action) -> None:
        match action:
            case a.Spawn():
                self._load(action.child, action.model)
            case a.Wake():
                self._load(action.child, self._model_of[action.child])
            case a.Measure():
                self._measure(action.child, action.model)
            case a.Sleep():
                self._later(SLEEP_TAKES_S, lambda: self._slept(action.child))
            case a.AskExit():
                self._leave(action.child, self._of(self._model_of[action.child]).exit_s)
            case a.Kill() | a.Terminate():
                self._leave(action.child, KILL_TAKES_S)
            case a.ReadMemory():
                self._later(0.0, self._read)
            case a.GrantLease():
                self._granted(action)
            case a.RefuseLease():
                self.tallies[self._asked.pop(action.key).model].refusals[action.kind] += 1
            case a.Note():
                self._noted(action)

    # ---- processes

    def _load(self, child: int, model: str) -> None:
        self._model_of[child] = model
        self._held[child] = self._of(model).need
        self.tallies[model].loads += 1
        for device in self._devices:
            used = sum(held.get(device, 0) for held in self._held.values())
            self.peaks[device] = max(self.peaks[device], used)
        self._later(self._of(model).load_s, lambda: self._ready(child))

    def _ready(self, child: int) -> e.Event | None:
        return e.ChildReady(child, dict(self._held[child])) if child in self._model_of else None

    def _measure(self, child: int, model: str) -> None:
        self._model_of[child] = model
        need = self._of(model).need
        self._later(0.0, lambda: e.ChildMeasured(child, e.Need(need, need)))
        self._leave(child, 0.0)

    def _slept(self, child: int) -> e.Event | None:
        if child not in self._model_of:
            return None
        self._held[child] = {}
        return e.ChildSlept(child, {})

    def _leave(self, child: int, after_s: float) -> None:
        self._later(after_s, lambda: self._exited(child))

    def _exited(self, child: int) -> e.Event | None:
        if self._model_of.pop(child, None) is None:
            return None
        self._held.pop(child, None)
        return e.ChildExited(child, 0)

    def _read(self) -> e.Event:
        readings = []
        for name, total in self._devices.items():
            ours = tuple((child, held[name]) for child, held in self._held.items() if held.get(name))
            free = max(0, total - sum(amount for _, amount in ours))
            readings.append(e.DeviceReading(name, total, free, ours))
        return e.MemoryRead(tuple(readings))

    # ---- answers

    def _granted(self, action: a.GrantLease) -> None:
        request = self._asked[action.key]
        self.tallies[request.model].waits_s.append(self._agenda.now - request.time_s)
        takes_s = request.duration_s if request.duration_s is not None else self._of(request.model).duration_s
        self._later(takes_s, lambda: self._released(action.key))

    def _released(self, key: LeaseKey) -> e.Event:
        self._asked.pop(key, None)
        return e.LeaseReleased(key)

    def _noted(self, note: a.Note) -> None:
        match note.kind:
            case "evict":
                self.tallies[note.model].evictions += 1
            case "drain":
                self.tallies[note.model].drains += 1


def outcome(replay: Replay) -> dict[str, Any]:
    """As JSON: `models` by name and `total`, each with its counts and its waits in seconds."""
    rows = {name: as_json(tally) for name, tally in sorted(replay.tallies.items())}
    total = sum(replay.tallies.values(), start=Tally())
    return {"models": rows, "total": as_json(total), "peak_bytes": dict(replay.peaks)}


def as_json(tally: Tally) -> dict[str, Any]:
    return {
        "requests": tally.requests,
        "warm": tally.warm,
        "loads": tally.loads,
        "evictions": tally.evictions,
        "drains": tally.drains,
        "refused": tally.refused,
        "refusals": dict(tally.refusals),
        "wait_p50_s": round(tally.wait_s(0.5), 3),
        "wait_p99_s": round(tally.wait_s(0.99), 3),
        "wait_max_s": round(tally.wait_s(1.0), 3),
    }
