"""Instances that hang: alive, with work to do, and doing none of it.

An instance counts its engine's steps, and a busy one sends its counters at least every HEARTBEAT_S, changed or not
(`wire.child`). It hangs when for `stall-timeout` seconds

* it is busy by its last word, its steps do not move (for whatever reason: it may not be heard at all), and its process
  uses next to no processor time; or
* it has requests and its process is stopped (SIGSTOP). An idle one has not promised to say anything.

Steps that stand still while the processor is busy may be one long decode on a slow machine; that gets WORKING_FACTOR
times as long, and then it is a loop without end. An instance that hangs is reported, and the scheduler ends it.

Looking costs a line of proc for each busy instance, and nothing is waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llamad.core.events import ChildStalled, Event
from llamad.daemon.loop import Loop, Timer
from llamad.daemon.monitor import Instance
from llamad.wire.child import LinkState

LOOK_S_MAX = 5.0
LOOKS_PER_TIMEOUT = 8
WORKING_FACTOR = 10.0
WORKING_SHARE = 0.1
"""Of one processor, from which on a process counts as working."""


@dataclass(slots=True)
class Watch:
    """One instance since it last got on."""

    steps: object
    since: float
    cpu_s: float
    stopped_since: float | None = None


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """A process at one moment. `stopped`: by a signal; `cpu_s`: since its start."""

    stopped: bool
    cpu_s: float


class Stalls:
    """`leases` tells how many requests a child has, `look` what its process is doing, None when it is gone."""

    def __init__(
        self,
        loop: Loop,
        instances: Callable[[], list[Instance]],
        leases: Callable[[], Mapping[int, int]],
        post: Callable[[Event], None],
        look: Callable[[int], ProcessLook | None],
    ) -> None:
        self._loop = loop
        self._instances = instances
        self._leases = leases
        self._post = post
        self._look = look
        self._timeout_s = 0.0
        self._timer: Timer | None = None
        self._watches: dict[int, Watch] = {}

    def limit(self, timeout_s: float) -> None:
        """0: look no more."""
        self._timeout_s = timeout_s
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timeout_s:
            self._arm()

    def _arm(self) -> None:
        every_s = min(LOOK_S_MAX, self._timeout_s / LOOKS_PER_TIMEOUT)
        self._timer = self._loop.call_later(every_s, self._look_at_all)

    def _look_at_all(self) -> None:
        self._arm()
        leases = self._leases()
        ready = [i for i in self._instances() if i.link.state is LinkState.READY]
        for instance in ready:
            if busy(instance.stats) or leases.get(instance.child):
                self._look_at(instance)
            else:
                self._watches.pop(instance.child, None)
        gone = self._watches.keys() - {instance.child for instance in ready}
        for child in gone:
            del self._watches[child]

    def _look_at(self, instance: Instance) -> None:
        now, found = self._loop.now(), self._look(instance.pid)
        if found is None:
            return
        steps = instance.stats.get("steps")
        watch = self._watches.get(instance.child)
        if watch is None or watch.steps != steps or not busy(instance.stats):
            stopped_since = watch.stopped_since if watch else None
            watch = self._watches[instance.child] = Watch(steps, now, found.cpu_s, stopped_since)
        watch.stopped_since = (watch.stopped_since or now) if found.stopped else None
        if complaint := self._complaint(watch, found, now):
            del self._watches[instance.child]
            self._post(ChildStalled(instance.child, f"cannot go on with {instance.spec.name!r}: {complaint}"))

    def _complaint(self, watch: Watch, found: ProcessLook, now: float) -> str:
        stopped_s = now - (watch.stopped_since if watch.stopped_since is not None else now)
        if stopped_s >= self._timeout_s:
            return f"its process has been stopped for {stopped_s:.0f} s and has requests"
        idle_s = now - watch.since
        working = found.cpu_s - watch.cpu_s >= WORKING_SHARE * idle_s
        if idle_s < self._timeout_s * (WORKING_FACTOR if working else 1.0):
            return ""
        return f"it is busy and its engine has done no step for {idle_s:.0f} s"


def busy(stats: Mapping[str, Any]) -> bool:
    """By its last word; an instance that counts no steps makes no promise."""
    if "steps" not in stats:
        return False
    return any(isinstance(n := stats.get(name), int) and n > 0 for name in ("slots_busy", "queued"))


def look_at_process(pid: int) -> ProcessLook | None:
    """Reads /proc/PID/stat (proc(5)), which does not wait for the process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read(4096)
    except OSError:
        return None
    # The second field is the name in parentheses, which may contain anything.
    fields = text[text.rindex(b")") + 2 :].split()
    ticks = int(fields[11]) + int(fields[12])
    return ProcessLook(fields[0] in (b"T", b"t"), ticks / os.sysconf("SC_CLK_TCK"))
