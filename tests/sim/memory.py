"""The devices as they really are: what each program holds, and what a look at them shows.

The scheduler's books are only as good as what the devices tell, so worlds differ in that: some tell processes apart
and some do not, some list a process that is already gone, other programs come and go, devices vanish and come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from llamad.core.events import DeviceReading, MemoryRead

if TYPE_CHECKING:
    from tests.sim.processes import Process
    from tests.sim.world import World

GIB = 1 << 30
BELIEVED_AFTER_S = 2.0
"""The books take bytes of a gone process for free after this long, whatever the device shows."""


class Memory:
    def __init__(self, world: World) -> None:
        self.w = world
        rng = world.rng
        self.totals = {"host": 64 * GIB, "CUDA0": 24 * GIB}
        if rng.random() < 0.3:
            self.totals["CUDA1"] = 12 * GIB
        self.mute = {"CUDA1"} if rng.random() < 0.15 else set[str]()
        """Devices of which nobody can tell how much is free."""
        self.tells_apart = rng.random() < 0.5
        self.lists_the_gone = rng.random() < 0.5
        self.others = dict.fromkeys(self.totals, 0)
        self.lost: set[str] = set()
        self._told: set[str] = set()
        """Devices that have ever shown a process of ours: from an empty list nothing follows before."""
        self._asked_settled = True
        self.read_at = float("-inf")
        """When the scheduler was last told."""
        self._disturbed_at = dict.fromkeys(self.totals, world.now)
        self._known_at = dict.fromkeys(self.totals, float("-inf"))

    def free(self, device: str) -> int:
        held = sum(process.holds.get(device, 0) for process in self.w.processes.holding.values())
        return max(0, self.totals[device] - self.others[device] - held)

    # ---- what a look shows

    def read_unasked(self) -> None:
        """The shell looks by its own accord, and says so at once."""
        self._deliver(tuple(self._reading(name) for name in self.totals if name not in self.lost), self.w.now)

    def read(self) -> None:
        """Look now; the scheduler hears of it at once, or a moment later."""
        self._asked_settled = self.w.processes.settled()
        readings = tuple(self._reading(name) for name in self.totals if name not in self.lost)
        looked_at = self.w.now
        self.w.later(self.w.rng.choice([0.0, 0.01, 0.01, 0.3]), lambda: self._deliver(readings, looked_at))

    def _reading(self, name: str) -> DeviceReading:
        ours: tuple[tuple[int, int], ...] = ()
        if self.tells_apart:
            shown = [
                process
                for process in self.w.processes.holding.values()
                if not process.gone or self.lists_the_gone
            ]
            ours = tuple((process.child, process.holds[name]) for process in shown if process.holds.get(name))
        return DeviceReading(
            name, self.totals[name], self.free(name) if name not in self.mute else None, ours
        )

    def _deliver(self, readings: tuple[DeviceReading, ...], looked_at: float) -> None:
        self.read_at = self.w.now
        settled = self.w.processes.settled() and self._asked_settled
        departing = self.w.scheduler.state.ledger.departing()
        for reading in readings:
            if reading.ours:
                self._told.add(reading.name)
            tells = settled or reading.name in self._told
            if tells and not departing.get(reading.name):
                self._known_at[reading.name] = looked_at
        self.w.step(MemoryRead(readings))

    # ---- how far the books can know it

    def forget(self) -> None:
        """The books of memory are closed, and know nothing when they are opened again."""
        self._told.clear()

    def disturb_books(self, devices: Iterable[str]) -> None:
        """Something happened there that nobody can know before the next look."""
        for name in devices:
            if name in self._disturbed_at:
                self._disturbed_at[name] = self.w.now

    def known(self, device: str) -> bool:
        """The last look showed the device as it still is."""
        return (
            device not in self.lost | self.mute
            and self._known_at.get(device, 0.0) > self._disturbed_at[device]
        )

    def unused_promises(self, device: str) -> int:
        """Bytes that our processes may still take. Where a device does not tell processes apart, what was promised to
        one that is not loading stands for what it takes: nobody can see the difference."""
        return sum(
            max(0, process.claim.get(device, 0) - process.holds.get(device, 0))
            for process in self.w.processes.live.values()
            if not process.killed and (self.tells_apart or process.loading)
        )

    def process_changed(self, process: Process) -> None:
        """It leaves, sleeps or is ready. Where devices do not tell processes apart and it took another amount than it
        was promised, the books are wrong until the next look."""
        if not self.tells_apart:
            self.disturb_books(
                name for name in self.totals if process.claim.get(name, 0) != process.holds.get(name, 0)
            )

    # ---- others

    def disturb(self) -> None:
        """Programs of others take and give back memory."""
        rng = self.w.rng
        device = rng.choice(list(self.totals))
        available = self.free(device) + self.others[device]
        self.others[device] = rng.choice([0, rng.randrange(min(available + 1, 12 * GIB))])
        self.disturb_books([device])
        if rng.random() < 0.3:
            self.read_unasked()

    def lose_or_find(self) -> None:
        """A device falls off the bus, comes back, or changes its size (a limit of the machine's memory)."""
        rng = self.w.rng
        device = rng.choice(list(self.totals))
        self.disturb_books([device])
        if device in self.lost:
            self.lost.remove(device)
        elif device == "host":
            self.totals[device] = rng.choice([16, 32, 64]) * GIB
        else:
            self.lost.add(device)
