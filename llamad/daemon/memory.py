"""The devices' memory, as the scheduler's books need it: carries out ReadMemory.

For each device a reading has `total`, `free` and, where the device tells processes apart, what each of our children has
of the difference (`ours`). The books then know what others hold:

    external = total - free - sum(ours)

and add what our children hold by their own account. So `ours` must be exactly our part of what the device calls used,
no matter what a child is said to hold, or something would be counted twice or not at all:

* Host: `counted` of `host_memory`. Mapped weights are not in it, because the kernel does not count them as used.
* GPU: what NVML says of the process and its descendants (children lead sessions of their own). Where NVML names none of
  ours, be it that it cannot see into our container, or that none uses the device, `ours` is empty, and the books' own
  figures stand for what we use.
* Any other device (an RPC server, Vulkan): only children that use it can see it. A measure child tells its name and
  size; nobody tells what is free, so it is kept by promises alone.

What a child really has is a cross-check: `used`, beside what it holds on the books. On the host that is its whole
resident memory. It differs from what is held by buffers that were not touched yet (less) and libraries' pages (more).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from llamad.core.actions import ReadMemory
from llamad.core.events import DeviceReading, Event, MemoryRead
from llamad.core.ledger import HOST
from llamad.daemon.gpus import GpuReading, Gpus
from llamad.daemon.host_memory import HostMemory
from llamad.daemon.loop import Loop, Timer

log = logging.getLogger(__name__)

READ_EVERY_S = 5.0
"""While nobody asks: for those who look at the books."""
DEVICES_MAX = 256
SLOW_S = 0.25


@dataclass(frozen=True, slots=True)
class Child:
    """An instance's process."""

    child: int
    pid: int


class Memory:
    """`children` gives the instances that run; `session_of` the session of a process, 0 where there is none."""

    def __init__(
        self,
        loop: Loop,
        host: HostMemory,
        gpus: Gpus,
        children: Callable[[], Iterable[Child]],
        session_of: Callable[[int], int],
        post: Callable[[Event], None],
    ) -> None:
        self._loop = loop
        self._host = host
        self._gpus = gpus
        self._children = children
        self._session_of = session_of
        self._post = post
        self._told: dict[str, int] = {}
        """Devices that only measure children see, and their size."""
        self._timer: Timer | None = None
        self._complained = False

    def read(self, _: ReadMemory | None = None) -> None:
        """Look now, and tell the scheduler."""
        began = self._loop.now()
        readings = self.readings()
        took_s = self._loop.now() - began
        if took_s > SLOW_S:
            log.warning("reading the devices took %.2f s", took_s)
        self._post(MemoryRead(tuple(readings)))

    def read_regularly(self, wanted: bool) -> None:
        """Look now, and again and again, whether anybody has to decide anything or not; or no more."""
        if wanted and self._timer is None:
            self._read_again()
        elif not wanted and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def learn(self, devices: Iterable[Any]) -> bool:
        """Take what a measure child told of its devices (ARCHITECTURE 4.1); whether any is new.

        What is no device is left out. A new one is on the books when it was read once.
        """
        before = dict(self._told)
        for device in devices:
            name, total = (
                (device.get("name"), device.get("total_bytes")) if isinstance(device, dict) else (0, 0)
            )
            known = name in self._told or len(self._told) < DEVICES_MAX
            if isinstance(name, str) and type(total) is int and known:
                self._told[name] = total
        return self._told != before

    # ---- names

    def to_books(self, amounts: Mapping[str, int], environment: Mapping[str, str]) -> dict[str, int]:
        """Amounts by the names that a model with these variables uses, by the names of the books."""
        names = self._gpus.names(environment)
        return {names.get(name, name): amount for name, amount in amounts.items()}

    def from_books(self, amounts: Mapping[str, int], environment: Mapping[str, str]) -> dict[str, int]:
        names = {theirs: ours for ours, theirs in self._gpus.names(environment).items()}
        return {names.get(name, name): amount for name, amount in amounts.items()}

    # ---- looking

    def readings(self) -> list[DeviceReading]:
        """Every device, now."""
        children = list(self._children())
        readings = [*self._read_host(children)]
        for gpu in self._gpus.read(self._loop.now()):
            readings.append(DeviceReading(gpu.name, gpu.total, gpu.free, self._ours(gpu, children)))
        seen = {reading.name for reading in readings} | {HOST}
        readings += [
            DeviceReading(name, total, None) for name, total in self._told.items() if name not in seen
        ]
        return readings

    def gpu_sizes(self) -> list[tuple[str, int]]:
        """Name and total of each GPU."""
        return [(gpu.name, gpu.total) for gpu in self._gpus.read(self._loop.now())]

    def used(self) -> dict[int, dict[str, int]]:
        """Bytes that each child really has now, by device. GPUs are left alone where nobody books them."""
        children = list(self._children())
        used = {child.child: {HOST: self._host.used_by(child.pid).resident} for child in children}
        if self._timer is None:
            return used
        for gpu in self._gpus.read(self._loop.now()):
            for child, amount in self._ours(gpu, children):
                used[child][gpu.name] = amount
        return used

    def _read_host(self, children: list[Child]) -> Iterable[DeviceReading]:
        try:
            total, free = self._host.read()
        except (OSError, ValueError, KeyError) as error:
            if not self._complained:
                log.error("cannot tell how much memory there is: %s", error)
                self._complained = True
            return
        ours = tuple((child.child, self._host.used_by(child.pid).counted) for child in children)
        yield DeviceReading(HOST, total, free, ours)

    def _ours(self, gpu: GpuReading, children: list[Child]) -> tuple[tuple[int, int], ...]:
        if not gpu.processes:
            return ()
        by_session: dict[int, int] = {}
        for pid, amount in gpu.processes:
            session = self._session_of(pid)
            by_session[session] = by_session.get(session, 0) + amount
        if not any(child.pid in by_session for child in children):
            return ()
        return tuple((child.child, by_session.get(child.pid, 0)) for child in children)

    def _read_again(self) -> None:
        self._timer = self._loop.call_later(READ_EVERY_S, self._read_again)
        self.read()
