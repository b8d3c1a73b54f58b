"""A random world around a Scheduler: clients, workers, operators and processes that misbehave, on a virtual clock.

One seed is one world, repeatable event by event. Everything the scheduler asks for is checked when it asks, its own
invariants after each step, and at the end that nobody was forgotten. A seed that failed once belongs in
`test_world.py`'s list for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import LeaseKey, Limits, ModelEntry
from llamad.core.invariants import broken
from llamad.core.scheduler import Scheduler

KILL_TAKES_S = 0.5
GIB = 1 << 30
DEVICES = {"host": 64 * GIB, "CUDA0": 24 * GIB}


class Broken(AssertionError):
    """The scheduler did something it never may."""


@dataclass
class Process:
    """A child as the world runs it."""

    child: int
    model: str
    measures: bool = False
    ready: bool = False
    asleep: bool = False
    asked: bool = False
    gone: bool = False
    deaf: int = 0
    """0: leaves when asked; 1: only by TERM; 2: only by KILL."""
    holds: dict[str, int] = field(default_factory=dict)
    """Bytes that the devices really have in its hands, also for a while after its death."""


@dataclass
class Lease:
    key: LeaseKey
    model: str
    asked_at: float
    reading: bool = False
    """Asked with `load=False`: no use of the model, so it protects it from nothing."""
    child: int = 0
    answered: bool = False
    waited_s: float = 0.0
    over: bool = False


@dataclass
class World:
    """`chaos` scales how often processes misbehave; 0 is a world in which everything works."""

    seed: int
    models: int = 6
    chaos: float = 1.0
    now: float = 1000.0
    steps: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.scheduler = Scheduler()
        self.processes: dict[int, Process] = {}
        self.leases: dict[LeaseKey, Lease] = {}
        self.tickets: dict[int, str] = {}
        self.workers = [1, 2]
        self.stopping_from: float | None = None
        self.finished = False
        self.others = dict.fromkeys(DEVICES, 0)
        self.tells_apart = self.rng.random() < 0.5
        self.uses = {f"m{i}": self._use() for i in range(self.models)}
        self.unchecked: set[str] = set()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._generation = 0
        self.limits = self._limits()
        self.entries = self._entries()
        self.step(e.ModelsConfigured(self.entries, self.limits, starting=True))

    # ---- the clock

    def later(self, after_s: float, happen: Callable[[], None]) -> None:
        self._numbers += 1
        heappush(self._heap, (self.now + after_s, self._numbers, happen))

    def run_until(self, at: float) -> None:
        """Let everything happen that is due, with the scheduler's own ticks between."""
        while True:
            tick = self.scheduler.next_deadline()
            happening = self._heap[0][0] if self._heap else None
            due = min((t for t in (tick, happening) if t is not None), default=None)
            if due is None or due > at:
                break
            self.now = max(self.now, due)
            if happening is not None and happening <= self.now:
                heappop(self._heap)[2]()
            else:
                self.step(e.ClockTicked())
        self.now = max(self.now, at)

    # ---- one step, checked

    def step(self, event: e.Event) -> None:
        actions = self.scheduler.step(event, self.now)
        self.steps += 1
        self.overcommits = any(
            isinstance(action, a.Note) and action.kind == "overcommit" for action in actions
        )
        for action in actions:
            self.seen[type(action).__name__] += 1
            getattr(self, "_on_" + type(action).__name__)(action)
        self._require(not (found := broken(self.scheduler.state)), "; ".join(found))

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            raise Broken(f"seed {self.seed}, step {self.steps}, at {self.now:.3f}: {message}")

    def _users(self, model: str) -> list[Lease]:
        """Leases that wait for or use `model`."""
        return [
            lease
            for lease in self.leases.values()
            if lease.model.split(":")[0] == model and not lease.over and not lease.reading
        ]

    def _check_budget(self, action: a.Spawn) -> None:
        """What is promised never exceeds what there is, as far as the books can know it."""
        for name in action.reserved or ():
            device = self.scheduler.state.ledger.device(name)
            short = -device.available if device else 0
            self._require(short <= 0, f"{short} bytes of {name} are promised twice")

    def _check_eviction(self, action: a.Note) -> None:
        """A victim is idle or a load nobody waits for; it is not pinned and not wanted."""
        name = action.model
        users = self._users(name)
        child = self.scheduler.state.models[name].child
        pinned = any(entry.pinned for entry in self.entries if entry.name == name)
        self._require(not any(lease.child == child for lease in users), f"victim {name} was busy")
        self._require(all(lease.answered for lease in users), f"victim {name} was waited for")
        self._require(not pinned, f"victim {name} is pinned")

    # ---- what the scheduler asks for

    def _on_Spawn(self, action: a.Spawn) -> None:
        self._require(action.child not in self.processes, "a child number was used twice")
        residents = sum(not process.gone and not process.measures for process in self.processes.values()) + 1
        most = self.limits.models_max
        self._require(not most or residents <= most, f"{residents} processes, at most {most} allowed")
        running = [p for p in self.processes.values() if p.model == action.model and not p.gone]
        self._require(not running, f"a second process of {action.model}")
        if not self.overcommits:
            self._check_budget(action)
        process = self.processes[action.child] = Process(action.child, action.model)
        self._load(process)

    def _load(self, process: Process) -> None:
        """What may come of a load."""
        chance = self.rng.random()
        bad = 0.25 * self.chaos
        process.deaf = self.rng.choice([0, 0, 0, 1, 2]) if self.rng.random() < bad else 0
        if chance < 0.1 * bad:
            self.later(0, lambda: self._not_spawned(process))
        elif chance < 0.5 * bad:
            self.later(self.rng.uniform(0, 10), lambda: self._exit(process, exit_code=1))
        elif chance < 0.6 * bad:
            pass  # hangs for ever
        else:
            takes_s = self.rng.choice([0.05, 1.0, 5.0, 20.0]) * self.rng.uniform(0.5, 1.5)
            self.later(takes_s / 2, lambda: self._half(process))
            self.later(takes_s, lambda: self._ready(process))

    def _half(self, process: Process) -> None:
        """Half of a load: the memory is taken now, or there is none."""
        if process.gone:
            return
        use = self.uses[process.model][0]
        if any(self._free(name) < amount for name, amount in use.items()):
            self.seen["out of memory"] += 1
            if self.rng.random() < 0.5:
                self.step(
                    e.ChildFailed(process.child, "out-of-memory", f"cannot load {process.model!r}: no memory")
                )
                self._exit(process, exit_code=1)
            else:
                self._exit(process, signal=9)
            return
        process.holds = dict(use)
        self.step(e.ChildProgressed(process.child, 0.5))

    def _free(self, device: str) -> int:
        held = sum(process.holds.get(device, 0) for process in self.processes.values())
        return max(0, DEVICES[device] - self.others[device] - held)

    def _use(self) -> tuple[dict[str, int], dict[str, int]]:
        """What a model takes at least and at most."""
        small = {"host": self.rng.randrange(GIB // 4, 8 * GIB)}
        if self.rng.random() < 0.7:
            small["CUDA0"] = self.rng.randrange(GIB, self.rng.choice([16, 16, 16, 40]) * GIB)
        grows = self.rng.choice([1.0, 1.0, 1.5])
        return small, {name: int(amount * grows) for name, amount in small.items()}

    def _on_Measure(self, action: a.Measure) -> None:
        process = self.processes[action.child] = Process(action.child, action.model, measures=True)
        chance = self.rng.random()
        if chance < 0.1 * self.chaos:
            self.unchecked.add(action.model)
            self.later(self.rng.uniform(0, 3), lambda: self._exit(process, exit_code=1))
        else:
            self.later(self.rng.uniform(0, 3), lambda: self._measured(process))

    def _measured(self, process: Process) -> None:
        if process.gone:
            return
        low, high = self.uses[process.model]
        self.step(e.ChildMeasured(process.child, e.Need(low, high)))
        self._exit(process, exit_code=0)

    def _on_ReadMemory(self, action: a.ReadMemory) -> None:
        readings = []
        for name, total in DEVICES.items():
            ours = ()
            if self.tells_apart:
                living = [p for p in self.processes.values() if not p.gone and not p.measures]
                ours = tuple((process.child, process.holds.get(name, 0)) for process in living)
            readings.append(e.DeviceReading(name, total, self._free(name), ours))
        self.later(self.rng.choice([0.0, 0.01]), lambda: self.step(e.MemoryRead(tuple(readings))))

    def _on_Sleep(self, action: a.Sleep) -> None:
        process = self.processes[action.child]
        self._require(process.ready and not process.asleep, "a process was put to sleep that does not serve")
        process.asleep, process.ready = True, False
        self.later(self.rng.uniform(0, 2), lambda: self._slept(process))

    def _slept(self, process: Process) -> None:
        if process.gone or not process.asleep:
            return
        process.holds = {"host": GIB // 8}
        self.step(e.ChildSlept(process.child, dict(process.holds)))

    def _on_Wake(self, action: a.Wake) -> None:
        process = self.processes[action.child]
        self._require(process.asleep, "a process was woken that does not sleep")
        process.asleep = False
        self._load(process)

    def _on_AskExit(self, action: a.AskExit) -> None:
        process = self.processes[action.child]
        busy = [lease for lease in self._users(process.model) if lease.child == action.child]
        late = self.stopping_from is not None and self.now >= self.stopping_from
        self._require(not busy or late, f"a busy process of {process.model} was asked to leave")
        process.asked = True
        if process.deaf == 0:
            self.later(self.rng.uniform(0, 3), lambda: self._exit(process, exit_code=0))

    def _on_Terminate(self, action: a.Terminate) -> None:
        process = self.processes[action.child]
        process.asked = True
        if process.deaf <= 1:
            self.later(self.rng.uniform(0, 1), lambda: self._exit(process, signal=15))

    def _on_Kill(self, action: a.Kill) -> None:
        process = self.processes[action.child]
        process.asked = True
        self.later(self.rng.uniform(0, KILL_TAKES_S), lambda: self._exit(process, signal=9))

    def _on_QueueLease(self, action: a.QueueLease) -> None:
        self._require(not self.leases[action.key].answered, "queued after the answer")
        self._require(action.position >= 1, "a position below 1")

    def _on_GrantLease(self, action: a.GrantLease) -> None:
        lease = self._answer(action.key)
        process = self.processes[action.child]
        there = process.ready or (lease.reading and process.asleep)
        self._require(
            there and not process.gone, f"granted on a process of {process.model} that is not there"
        )
        self._require(not process.asked, "granted on a process that was asked to leave")
        lease.child = action.child
        takes_s = self.rng.choice([0.01, 0.5, 5.0, 60.0]) * self.rng.uniform(0.5, 1.5)
        self.later(takes_s, lambda: self._release(lease))

    def _on_RefuseLease(self, action: a.RefuseLease) -> None:
        lease = self._answer(action.key)
        lease.over = True
        self.seen["refused " + action.kind] += 1
        self._require(400 <= action.status < 600 and action.message.startswith("cannot"), f"refusal {action}")

    def _on_EndLease(self, action: a.EndLease) -> None:
        lease = self.leases[action.key]
        self._require(lease.answered and not lease.over, "ended a lease that is not held")
        lease.over = True

    def _on_AnswerTicket(self, action: a.AnswerTicket) -> None:
        self._require(action.ticket in self.tickets, f"ticket {action.ticket} answered twice")
        del self.tickets[action.ticket]

    def _on_Note(self, action: a.Note) -> None:
        self._require(bool(action.text), "a note without words")
        self.seen["note " + action.kind] += 1
        if action.kind == "stop" and action.text.startswith("unloaded to make room"):
            self._check_eviction(action)

    def _on_Finish(self, action: a.Finish) -> None:
        self._require(not self.finished, "finished twice")
        self._require(
            all(process.gone for process in self.processes.values()), "finished before the last process"
        )
        self.finished = True

    def _answer(self, key: LeaseKey) -> Lease:
        lease = self.leases[key]
        self._require(not lease.answered and not lease.over, f"{key} was answered twice or after it left")
        lease.answered = True
        lease.waited_s = self.now - lease.asked_at
        return lease

    # ---- processes

    def _if_alive(self, process: Process, event: e.Event) -> None:
        if not process.gone:
            self.step(event)

    def _ready(self, process: Process) -> None:
        if process.gone:
            return
        process.ready = True
        self.step(e.ChildReady(process.child, dict(process.holds) if self.rng.random() < 0.8 else None))
        if self.rng.random() < 0.15 * self.chaos:
            self.later(
                self.rng.expovariate(1 / 30), lambda: self._exit(process, signal=self.rng.choice([9, 11]))
            )

    def _exit(self, process: Process, exit_code: int | None = None, signal: int | None = None) -> None:
        if process.gone:
            return
        process.gone = True
        self.later(self.rng.choice([0.0, 0.0, 0.3, 3.0]), process.holds.clear)
        if exit_code == 1 and self.rng.random() < 0.5:
            self.step(
                e.ChildFailed(process.child, "load-failed", f"cannot load {process.model!r}: broken file")
            )
        self.step(e.ChildExited(process.child, exit_code, signal, tail="last words"))

    def _not_spawned(self, process: Process) -> None:
        process.gone = True
        self.step(e.ChildNotSpawned(process.child, "no such file"))

    def _release(self, lease: Lease) -> None:
        if not lease.over:
            lease.over = True
            self.step(e.LeaseReleased(lease.key))

    # ---- clients and operators

    def ask(self, model: str, **fields: object) -> Lease:
        self._numbers += 1
        key = LeaseKey(self.rng.choice(self.workers), self._numbers)
        lease = self.leases[key] = Lease(key, model, self.now, reading=fields.get("load") is False)
        self.step(e.LeaseAsked(key, model, **fields))  # type: ignore[arg-type]
        return lease

    def _random_ask(self) -> None:
        fields: dict[str, object] = {}
        if self.rng.random() < 0.05:
            fields["load"] = False
        if self.rng.random() < 0.05:
            fields["autoload"] = self.rng.random() < 0.5
        if self.rng.random() < 0.05:
            fields["avoid"] = self.rng.randrange(1, len(self.processes) + 2)
        name = f"m{min(int(self.rng.expovariate(0.5)), self.models)}"
        lease = self.ask(name + self.rng.choice(["", "", ":alias"]), **fields)
        if self.rng.random() < 0.2:
            self.later(self.rng.expovariate(1 / 5), lambda: self._leave(lease))

    def _leave(self, lease: Lease) -> None:
        if lease.over:
            return
        lease.over = True
        self.step(e.LeaseReleased(lease.key) if lease.answered else e.LeaseCancelled(lease.key))

    def _lose_worker(self) -> None:
        worker = self.rng.choice(self.workers)
        self.workers.remove(worker)
        self._numbers += 1
        self.workers.append(self._numbers)
        for lease in self.leases.values():
            if lease.key.worker == worker:
                lease.over = True
        self.step(e.WorkerLost(worker))

    def _order(self) -> None:
        self._numbers += 1
        ticket, model = self._numbers, f"m{self.rng.randrange(self.models + 1)}"
        self.tickets[ticket] = model
        if self.rng.random() < 0.5:
            self.step(e.LoadAsked(ticket, model))
        else:
            self.step(e.UnloadAsked(ticket, model, force=self.rng.random() < 0.3))
        if self.rng.random() < 0.1 and ticket in self.tickets:
            del self.tickets[ticket]
            self.step(e.TicketDropped(ticket))

    def _limits(self) -> Limits:
        return Limits(
            models_max=self.rng.choice([0, 1, 1, 2, 3]),
            autoload=self.rng.random() < 0.9,
            drain_after_s=self.rng.choice([0.0, 5.0, 30.0]),
            queue_timeout_s=self.rng.choice([20.0, 600.0]),
            max_queued=self.rng.choice([3, 512]),
            abandon_after_s=self.rng.choice([0.0, 10.0, 60.0]),
            load_timeout_s=self.rng.choice([0.0, 60.0]),
            margin_bytes=self.rng.choice([None, 0, GIB]),
        )

    def _entries(self) -> tuple[ModelEntry, ...]:
        names = [f"m{i}" for i in range(self.models) if self.rng.random() < 0.95]
        return tuple(
            ModelEntry(
                name,
                (f"{name}:alias",),
                fingerprint=str(self.rng.choice([self._generation, 0])),
                pinned=self.rng.random() < 0.08,
                load_on_startup=self.rng.random() < 0.25,
                stop_timeout_s=self.rng.choice([1.0, 10.0]),
                priority=self.rng.choice([0, 0, 0, 1, -1]),
                sleep_idle_s=self.rng.choice([0.0, 0.0, 5.0]),
                unload_idle_s=self.rng.choice([0.0, 0.0, 20.0]),
            )
            for name in names
        )

    def _pin(self) -> None:
        self._numbers += 1
        model = f"m{self.rng.randrange(self.models + 1)}"
        self.tickets[self._numbers] = model
        if (pinned := self.rng.random() < 0.5) and self.rng.random() < 0.5:
            self.step(e.PinAsked(self._numbers, model, pinned, for_s=self.rng.uniform(1, 100)))
            return
        self.entries = tuple(replace(x, pinned=pinned) if x.name == model else x for x in self.entries)
        self.step(e.PinAsked(self._numbers, model, pinned))

    def _disturb(self) -> None:
        """Programs of others take and give back memory."""
        device = self.rng.choice(list(DEVICES))
        self.others[device] = self.rng.choice([0, self.rng.randrange(min(self._free(device) + 1, 8 * GIB))])

    def _reload(self) -> None:
        self._generation += 1
        self.entries = self._entries()
        if self.rng.random() < 0.3:
            self.limits = self._limits()
        self.step(e.ModelsConfigured(self.entries, self.limits))

    # ---- a whole life

    def live(self, happenings: int) -> None:
        """That many random happenings, close together or far apart by turns."""
        pace_s = 1.0
        for _ in range(happenings):
            if self.rng.random() < 0.02:
                pace_s = self.rng.choice([0.01, 0.3, 3.0, 30.0])
            self.run_until(self.now + self.rng.expovariate(1 / pace_s))
            chance = self.rng.random()
            if chance < 0.01:
                self._lose_worker()
            elif chance < 0.04:
                self._order()
            elif chance < 0.05:
                self._reload()
            elif chance < 0.06:
                self._pin()
            elif chance < 0.08:
                self._disturb()
            else:
                self._random_ask()

    def settle(self) -> None:
        """Without new happenings everybody is answered, and no wait was longer than the longest limit allowed."""
        self.run_until(self.now + 2000)
        forgotten = [lease.key for lease in self.leases.values() if not (lease.answered or lease.over)]
        self._require(not forgotten, f"never answered: {forgotten}")
        self._require(not self.tickets, f"tickets never answered: {self.tickets}")
        self._require(self.longest_wait_s() <= 600 + 1e-6, f"somebody waited {self.longest_wait_s():.1f} s")

    def longest_wait_s(self, model: str = "") -> float:
        """Of all answered requests, or of those for one model."""
        return max(lease.waited_s for lease in self.leases.values() if model in ("", lease.model))

    def stop(self, within_s: float = 30.0) -> None:
        """The daemon stops: everything ends, in bounded time."""
        self.stopping_from = self.now + within_s
        self.step(e.StopAsked(self.stopping_from))
        for _ in range(5):
            self._random_ask()
        self.run_until(self.stopping_from + 10.0 + KILL_TAKES_S + 1.0)
        self._require(self.finished, "not finished within the stop limit")
        self._require(not self.scheduler.state.places, "leases are left after the end")
