"""The books: what is held, and what may still be handed out.

A *device* is anything that there is only so much of: a GPU's memory, the machine's memory (`host`), and the number of
processes allowed by `models-max` (`processes`, of which each process needs one). So one arithmetic serves all limits:

    available = total - external - margin - held        deficit = need - available

* `external` is what programs that are not ours hold. It is measured, not guessed: total - free - what our processes
  hold at that moment.
* `held` is what our processes were promised (from before their spawn) or really took (from when they are ready).
  It is given back when the process is gone *and* the device shows it; a device that does not show it within
  `DEPART_S_MAX` is believed, and what it still misses counts as external.
* `margin` is the part of each memory that the operator wants to keep free.

A device that is named in a need but unknown to the books does not limit anything; without `models-memory-margin` the
only device is `processes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llamad.core.events import Amounts, DeviceReading

PROCESSES = "processes"
HOST = "host"

DEPART_S_MAX = 2.0
SHOWN_SHARE = 0.9
"""A device shows a release when it has this share of the bytes back; drivers and other programs blur the rest."""


def added(left: Amounts, right: Amounts) -> dict[str, int]:
    """Amounts of both together."""
    return {
        name: left.get(name, 0) + right.get(name, 0) for name in [*left, *(n for n in right if n not in left)]
    }


def short_of(need: Amounts, room: Amounts) -> dict[str, int]:
    """What `room` lacks for `need`, on devices that `room` knows."""
    return {
        name: amount - room[name]
        for name, amount in need.items()
        if name in room and amount > max(0, room[name])
    }


@dataclass(slots=True)
class Device:
    """One limited thing."""

    name: str
    total: int
    external: int = 0
    margin: int = 0
    held: int = 0
    tells_apart: bool = False
    """It has shown who holds what, so when it shows none of ours none of ours is there."""

    @property
    def available(self) -> int:
        """May still be promised; negative when others have taken what was promised before."""
        return self.total - self.external - self.margin - self.held


@dataclass(slots=True)
class Holding:
    """What one process holds. `measured` is what it was last seen to use, for comparison.

    `depart_by`: the process is gone, and what it held is given back when the device shows it, or then. `looked_for`: a
    look at the devices has begun since its end; an earlier one may show what was before the process took it.
    """

    model: str
    amounts: dict[str, int]
    measured: dict[str, int]
    depart_by: float | None = None
    looked_for: bool = False


class Ledger:
    """Who holds what. Keyed by child, because two processes of one model are two holders."""

    def __init__(self, models_max: int = 0) -> None:
        self._devices: dict[str, Device] = {}
        self._held: dict[int, Holding] = {}
        self.margin: int | None = None
        """Bytes kept free on each memory; None: memory is not booked at all."""
        self.read_at: float | None = None
        self.limit_processes(models_max)

    # ---- limits and readings

    def limit_processes(self, models_max: int) -> None:
        """0: any number."""
        if models_max:
            device = self._devices.setdefault(PROCESSES, Device(PROCESSES, 0, held=len(self.holders())))
            device.total = models_max
        else:
            self._devices.pop(PROCESSES, None)

    def keep_free(self, margin: int | None) -> None:
        """Turn the books of memory on (bytes) or off (None)."""
        self.margin = margin
        self.read_at = None if margin is None else self.read_at
        for device in list(self.memories()):
            if margin is None:
                del self._devices[device.name]
            else:
                device.margin = margin

    def look(self) -> None:
        """A look at the devices begins; what it shows is told by `read`."""
        for holding in self._held.values():
            holding.looked_for = holding.depart_by is not None

    def read(self, readings: Iterable[DeviceReading], *, settled: bool, asked: bool, now: float) -> None:
        """Correct the books by what the devices show: in the look that has begun last if `asked`, else just now.

        Where a device does not tell processes apart, what we promised stands for what we use; while a process is
        loading (`settled` is False) that is not yet true, and the last figure for `external` is kept, or raised by what
        is used beyond all promises.
        """
        if self.margin is None:
            return
        self.read_at = now
        if not asked:
            self.look()
        others = {r.name: self._read_device(r, settled=settled) for r in readings}
        for child in [child for child, holding in self._held.items() if holding.depart_by is not None]:
            self._depart(child, others, now)
        departing = self.departing()
        for name, external in others.items():
            if external is None:
                continue
            device, kept = self._devices[name], departing.get(name, 0)
            # What the departing may still have is on the books already; what is beyond that is others' all the same.
            device.external = max(device.external, external - kept) if kept else max(0, external)

    def _read_device(self, reading: DeviceReading, *, settled: bool) -> int | None:
        """Take a reading; gives what others hold by it, where gone processes count as others. None: not known now."""
        known = reading.name in self._devices
        if not known:
            held = sum(holding.amounts.get(reading.name, 0) for holding in self._held.values())
            self._devices[reading.name] = Device(reading.name, reading.total, 0, self.margin or 0, held)
        device = self._devices[reading.name]
        device.total = reading.total
        for child, used in reading.ours:
            if child in self._held:
                self._held[child].measured[reading.name] = used
        if reading.free is None:
            return device.external
        device.tells_apart = device.tells_apart or bool(reading.ours)
        if device.tells_apart:
            # What is not on our books (a gone process, more than was promised) is as good as another program's.
            booked = {c: h.amounts.get(reading.name, 0) for c, h in self._held.items() if h.depart_by is None}
            ours = sum(min(used, booked.get(child, 0)) for child, used in reading.ours)
        elif settled or not known:
            ours = device.held - self.departing().get(reading.name, 0)
        else:
            # Ours have taken no more than is on the books: what is used beyond that is others' even now.
            device.external = max(device.external, reading.total - reading.free - device.held)
            return None
        return reading.total - reading.free - ours

    def _depart(self, child: int, others: dict[str, int | None], now: float) -> None:
        """Give back what a gone process held, once its devices no longer show it as somebody else's."""
        holding = self._held[child]
        assert holding.depart_by is not None
        kept = {
            name: amount
            for name, amount in holding.amounts.items()
            if now < holding.depart_by
            and not (holding.looked_for and self._shown(name, amount, others.get(name)))
        }
        self.replace(child, kept)
        if not kept:
            del self._held[child]

    def _shown(self, name: str, amount: int, others: int | None) -> bool:
        """The device has `amount` bytes less in the hands of others than it would, had they not come back."""
        if name == HOST:
            return True  # the kernel has taken back a process's memory before its end can be waited for
        return others is not None and others <= self._devices[name].external + (1 - SHOWN_SHARE) * amount

    # ---- the books

    def reserve(self, child: int, model: str, amounts: Amounts) -> None:
        """Promise room to a process that is about to be spawned."""
        self._held[child] = Holding(model, {}, {})
        self.replace(child, amounts)

    def replace(self, child: int, amounts: Amounts) -> None:
        """A process was promised another amount, or told what it really took."""
        holding = self._held[child]
        for name in {*holding.amounts, *amounts}:
            if name in self._devices:
                self._devices[name].held += amounts.get(name, 0) - holding.amounts.get(name, 0)
        holding.amounts = dict(amounts)

    def give_back(self, child: int, now: float) -> None:
        """The process is gone: it no longer counts as one, and its memory follows when the devices show it."""
        holding = self._held[child]
        memory = {name: amount for name, amount in holding.amounts.items() if name in self._memory_names()}
        self.replace(child, memory)
        if memory:
            holding.depart_by = now + DEPART_S_MAX
            self.read_at = None  # what was seen before its end is stale
        else:
            del self._held[child]

    # ---- looking

    def memories(self) -> list[Device]:
        """Every device but the count of processes."""
        return [device for device in self._devices.values() if device.name != PROCESSES]

    def device(self, name: str) -> Device | None:
        return self._devices.get(name)

    def available(self) -> dict[str, int]:
        return {name: device.available for name, device in self._devices.items()}

    def fits(self, need: Amounts) -> bool:
        return not short_of(need, self.available())

    def held_by(self, child: int) -> dict[str, int]:
        return dict(self._held[child].amounts)

    def measured(self, child: int) -> dict[str, int]:
        return dict(self._held[child].measured)

    def departing(self) -> dict[str, int]:
        """What gone processes have not been seen to give back."""
        amounts: dict[str, int] = {}
        for holding in self._held.values():
            if holding.depart_by is not None:
                amounts = added(amounts, holding.amounts)
        return amounts

    def holders(self) -> dict[int, str]:
        """Live child to model, in the order in which they took room."""
        return {child: holding.model for child, holding in self._held.items() if holding.depart_by is None}

    def _memory_names(self) -> set[str]:
        return {device.name for device in self.memories()}
