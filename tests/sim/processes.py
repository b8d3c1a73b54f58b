"""Children as the world runs them: they load, serve, sleep and leave, or crash, hang, linger and lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llamad.core import actions as a
from llamad.core import events as e
from tests.sim.memory import BELIEVED_AFTER_S, GIB

if TYPE_CHECKING:
    from tests.sim.world import World

KILL_TAKES_S = 0.5
EXIT_TAKES_S = 3.0
LOAD_TAKES_S = 30.0
MEASURE_TAKES_S = 3.0
RELEASE_TAKES_S = 3.0
STOP_TIMEOUT_S_MAX = 10.0
"""The longest of each in a world where everything works; a kill never takes longer."""


@dataclass
class Process:
    """A child. `claim` is what it was promised or said it takes, `holds` what devices really have in its hands, also
    for a while after its death."""

    child: int
    model: str
    fingerprint: str
    measures: bool = False
    ready: bool = False
    asleep: bool = False
    slept: bool = False
    """It has said so."""
    hangs: bool = False
    gone: bool = False
    gone_at: float = 0.0
    deaf: int = 0
    """0: leaves when asked; 1: only by TERM; 2: only by KILL."""
    slots: int = 0
    placement: e.Placement | None = None
    asked_at: float | None = None
    stop_timeout_s: float = 0.0
    killed: bool = False
    stopped: bool = False
    """The scheduler has said that it stops it: its end is no failure, unless it was given up."""
    given_up: bool = False
    draining: bool = False
    abandoned_at: float | None = None
    """Since when it loads for nobody."""
    progress_at: float = 0.0
    """When it began or last said how far it is, in time awake."""
    failed_at: float | None = None
    """When it said that it is about to exit, in time awake."""
    wanted_at: float = float("-inf")
    """When somebody last waited for it, in time awake."""
    ready_at: float | None = None
    used_at: float = 0.0
    """When it was last ready, or the last use of it ended."""
    claim: dict[str, int] = field(default_factory=dict)
    awake_claim: dict[str, int] = field(default_factory=dict)
    holds: dict[str, int] = field(default_factory=dict)

    @property
    def loading(self) -> bool:
        return not (self.measures or self.ready or self.asleep or self.gone)

    @property
    def leaving(self) -> bool:
        return self.asked_at is not None or self.killed


def _times(amounts: dict[str, int], factor: float) -> dict[str, int]:
    return {name: int(amount * factor) for name, amount in amounts.items()}


class Processes:
    def __init__(self, world: World) -> None:
        self.w = world
        self.all: dict[int, Process] = {}
        self.live: dict[int, Process] = {}
        self.holding: dict[int, Process] = {}
        """Live ones and those whose memory has not come back yet."""
        self.needs = {name: self._need() for name in world.names}

    def _need(self) -> e.Need:
        """What a model takes at least and at most; some may be put on either of two GPUs, or on both."""
        rng = self.w.rng
        small = {"host": rng.randrange(GIB // 4, 8 * GIB)}
        for device in list(self.w.memory.totals)[1:]:
            if rng.random() < 0.7:
                small[device] = rng.randrange(GIB, rng.choice([10, 16, 16, 40 if self.w.chaos else 16]) * GIB)
        grows = rng.choice([1.0, 1.0, 1.5])
        ways: tuple[e.Placement, ...] = ()
        if "CUDA1" in self.w.memory.totals and rng.random() < 0.5:
            host, gpu = small["host"], rng.randrange(GIB, 20 * GIB)
            small = {"host": host, "CUDA0": gpu}
            ways = tuple(
                e.Placement(
                    tuple(share),
                    amounts,
                    _times(amounts, grows),
                    tuple(share.values()) if len(share) > 1 else (),
                )
                for share in ({"CUDA0": 1.0}, {"CUDA1": 1.0}, {"CUDA0": 0.6, "CUDA1": 0.4})
                if (amounts := {"host": host} | {device: int(gpu * part) for device, part in share.items()})
            )
        return e.Need(small, _times(small, grows), ways)

    def settled(self) -> bool:
        """All hold what they were promised or said: none loads, and none is just falling asleep."""
        return not any(
            process.loading or (process.asleep and not process.slept) for process in self.live.values()
        )

    def of(self, model: str) -> Process | None:
        """The model's process, if it has one."""
        return next((p for p in self.live.values() if p.model == model), None)

    # ---- what the scheduler asks for

    def spawn(self, action: a.Spawn) -> None:
        process = self._start(action.child, action.model, measures=False)
        process.claim = process.awake_claim = dict(action.reserved or {})
        process.placement = action.placement
        process.slots = self.w.rng.choice([0, 0, 1, 2])
        if self._bad(0.025):
            self.w.later(0, lambda: self._not_spawned(process))
            return
        self._load(process)
        if self._bad(0.03):
            self.w.later(self.w.rng.expovariate(1 / 30), lambda: self.exit(process, signal=11))

    def _start(self, child: int, model: str, *, measures: bool) -> Process:
        entry = self.w.operators.entry(model)
        fingerprint = entry.fingerprint if entry else ""
        process = Process(child, model, fingerprint, measures, progress_at=self.w.agenda.awake_s)
        self.all[child] = self.live[child] = process
        return process

    def _bad(self, chance: float) -> bool:
        return self.w.rng.random() < chance * self.w.chaos

    def _load(self, process: Process) -> None:
        """What may come of a load."""
        rng, chance, bad = self.w.rng, self.w.rng.random(), 0.25 * self.w.chaos
        process.progress_at = self.w.agenda.awake_s
        process.deaf = rng.choice([0, 0, 0, 1, 2]) if rng.random() < bad else 0
        if chance < 0.4 * bad:
            self.w.later(rng.uniform(0, 10), lambda: self._break(process))
        elif chance < 0.5 * bad:
            self._hang(process)
        else:
            takes_s = rng.choice([0.05, 1.0, 5.0, 20.0]) * rng.uniform(0.5, 1.5)
            if self._bad(0.05):
                takes_s = 300.0  # slow, but alive: it reports progress
            for part in range(1, int(takes_s / 20)):
                self.w.later(part * 20, lambda: self._progress(process))
            self.w.later(takes_s / 2, lambda: self._half(process))
            self.w.later(takes_s, lambda: self._ready(process))

    def _progress(self, process: Process) -> None:
        if process.loading and not process.hangs:
            process.progress_at = self.w.agenda.awake_s
            self.w.step(e.ChildProgressed(process.child, self.w.rng.random()))

    def _half(self, process: Process) -> None:
        """Half of a load: the memory is taken now, or there is none."""
        if process.gone or process.hangs:
            return
        wants = self._wants(process)
        booked = not self.w.calm or self.w.operators.limits.margin_bytes is not None
        own = process.holds  # of one that was woken before it had gone to sleep
        if booked and any(self.w.memory.free(name) + own.get(name, 0) < n for name, n in wants.items()):
            self.w.seen["out of memory"] += 1
            self._out_of_memory(process)
            return
        process.holds = wants
        self.holding[process.child] = process
        # What it takes beyond its promise is news to the books.
        self.w.memory.disturb_books(name for name, n in wants.items() if n > process.claim.get(name, 0))
        self._progress(process)

    def _wants(self, process: Process) -> dict[str, int]:
        """All that was promised, as far as it can use it; some take more than they were promised."""
        way = process.placement or self.needs[process.model]
        low, high = way.minimum, way.maximum
        more = 1.1 if self._bad(0.1) else 1.0
        most = high if not process.awake_claim else process.awake_claim
        return {name: int(min(high[name], max(low[name], most.get(name, 0))) * more) for name in low}

    def _out_of_memory(self, process: Process) -> None:
        if self.w.rng.random() < 0.5:
            self.w.step(
                e.ChildFailed(process.child, "out-of-memory", f"cannot load {process.model!r}: no memory")
            )
            self.exit(process, exit_code=1)
        else:
            self.exit(process, signal=9)

    def _ready(self, process: Process) -> None:
        if process.gone or process.hangs:
            return
        if process.leaving:  # it was killed, and does not know it yet
            self.w.step(e.ChildReady(process.child, dict(process.holds)))
            return
        process.ready, process.ready_at, process.used_at = True, self.w.now, self.w.now
        effective = dict(process.holds) if not self._bad(0.2) else None
        if effective is not None:
            process.claim = dict(effective)
        process.awake_claim = process.claim
        self.w.memory.process_changed(process)
        self.w.step(e.ChildReady(process.child, effective, process.slots))
        if self._bad(0.1):
            self.w.later(self.w.rng.expovariate(1 / 30), lambda: self.exit(process, signal=9))
        elif self._bad(0.05):
            self.w.later(self.w.rng.expovariate(1 / 30), lambda: self._hang(process))
        elif self._bad(0.02):
            self.w.later(self.w.rng.expovariate(1 / 30), lambda: self.exit(process, exit_code=0))

    def measure(self, action: a.Measure) -> None:
        process, rng = self._start(action.child, action.model, measures=True), self.w.rng
        takes_s = rng.uniform(0, MEASURE_TAKES_S)
        if self._bad(0.02):
            self.w.later(0, lambda: self._not_spawned(process))
        elif self._bad(0.02):
            self._hang(process)
        elif self._bad(0.08):
            self.w.later(takes_s, lambda: self._break(process))
        else:
            self.w.later(takes_s, lambda: self._measured(process))

    def _measured(self, process: Process) -> None:
        if process.gone:
            return
        self.w.step(e.ChildMeasured(process.child, self.needs[process.model]))
        if self._bad(0.02):
            self._hang(process)
        else:
            self.w.later(self.w.rng.choice([0.0, 0.1]), lambda: self.exit(process, exit_code=0))

    def sleep(self, action: a.Sleep) -> None:
        process = self.all[action.child]
        process.asleep, process.ready, process.slept = True, False, False
        if not process.hangs:
            self.w.later(self.w.rng.uniform(0, 2), lambda: self._slept(process))

    def _slept(self, process: Process) -> None:
        if process.gone or process.hangs:
            return
        if not process.asleep:  # woken meanwhile: the news comes late
            self.w.step(e.ChildSlept(process.child, {"host": GIB // 8}))
            return
        process.holds = {"host": GIB // 8}
        self.w.memory.process_changed(process)
        effective = dict(process.holds) if not self._bad(0.1) else None
        if (
            effective is not None and not process.leaving
        ):  # who leaves gives all back at once, when it is gone
            process.claim = dict(effective)
        process.slept = True
        self.w.step(e.ChildSlept(process.child, effective))

    def wake(self, action: a.Wake) -> None:
        process = self.all[action.child]
        process.asleep = False
        process.claim, process.progress_at = process.awake_claim, self.w.agenda.awake_s
        self.w.memory.process_changed(process)
        if not process.hangs:
            self._load(process)

    def ask_exit(self, action: a.AskExit) -> None:
        process = self.all[action.child]
        process.asked_at = self.w.agenda.awake_s
        entry = self.w.operators.entry(process.model)
        process.stop_timeout_s = entry.stop_timeout_s if entry else STOP_TIMEOUT_S_MAX
        if process.deaf == 0:
            self.w.later(self.w.rng.uniform(0, EXIT_TAKES_S), lambda: self.exit(process, exit_code=0))

    def terminate(self, action: a.Terminate) -> None:
        process = self.all[action.child]
        if process.deaf <= 1:
            self.w.later(self.w.rng.uniform(0, 1), lambda: self.exit(process, signal=15))

    def kill(self, action: a.Kill) -> None:
        process = self.all[action.child]
        process.killed = True
        self.w.later(self.w.rng.uniform(0, KILL_TAKES_S), lambda: self.exit(process, signal=9))

    # ---- what they do of their own accord

    def _hang(self, process: Process) -> None:
        """It does nothing any more. The shell may notice (a missing heartbeat), or not."""
        if process.gone:
            return
        process.hangs, process.deaf = True, 2
        if self.w.rng.random() < 0.5:
            self.w.later(self.w.rng.uniform(1, 60), lambda: self._stall(process))

    def _stall(self, process: Process) -> None:
        if not process.gone:
            self.w.seen["stalled"] += 1
            self.w.step(e.ChildStalled(process.child, f"cannot reach {process.model!r}: no heartbeat"))

    def _break(self, process: Process) -> None:
        """A load or a measurement fails, and most processes say so before they exit. Some then never exit."""
        if process.gone or process.hangs:
            return
        if self.w.rng.random() < 0.5:
            kind = "measure-failed" if process.measures else "load-failed"
            process.failed_at = self.w.agenda.awake_s
            self.w.step(e.ChildFailed(process.child, kind, f"cannot load {process.model!r}: broken file"))
        if self._bad(0.1):
            self._hang(process)
        else:
            self.w.later(self.w.rng.choice([0.0, 1.0]), lambda: self.exit(process, exit_code=1))

    def _not_spawned(self, process: Process) -> None:
        self._bury(process)
        self.w.step(e.ChildNotSpawned(process.child, "no such file"))

    def exit(self, process: Process, exit_code: int | None = None, signal: int | None = None) -> None:
        if process.gone:
            return
        self._bury(process)
        self.w.step(e.ChildExited(process.child, exit_code, signal, tail="last words"))
        if self._bad(0.1):
            self.w.later(self.w.rng.uniform(0, 5), lambda: self._late_news(process))

    def _bury(self, process: Process) -> None:
        process.gone, process.gone_at = True, self.w.now
        del self.live[process.child]
        if not process.holds:
            return
        self.w.memory.process_changed(process)
        for device in ("host", *self.w.memory.mute):
            # The kernel has taken that back before an end can be waited for; nothing can be told of the other.
            process.holds.pop(device, None)
        release_s = self.w.rng.choice([0.0, 0.0, 0.3, RELEASE_TAKES_S if self.w.chaos else 1.0])
        self.w.later(release_s, lambda: self._released(process))
        if release_s > BELIEVED_AFTER_S or not self.w.memory.tells_apart:
            self.w.later(BELIEVED_AFTER_S, lambda: self.w.memory.disturb_books(process.holds))

    def _released(self, process: Process) -> None:
        process.holds.clear()
        del self.holding[process.child]

    def _late_news(self, process: Process) -> None:
        """A line that was still in a pipe of a process that is long gone."""
        child = process.child
        news: list[e.Event] = [
            e.ChildReady(child, {"host": GIB}),
            e.ChildProgressed(child, 0.5),
            e.ChildMeasured(child, e.Need({"host": 1}, {"host": 1})),
            e.ChildSlept(child, {"host": 0}),
            e.ChildStalled(child, "cannot hear it"),
            e.ChildFailed(child, "load-failed", "cannot load it"),
            e.ChildExited(child, 0),
            e.ChildNotSpawned(child, "cannot spawn it"),
        ]
        self.w.seen["late news"] += 1
        self.w.step(self.w.rng.choice(news))
