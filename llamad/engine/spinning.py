"""How long OpenMP's threads spin where they wait for each other: long on cores that they have to themselves, else short.

A token takes hundreds of barriers. Who goes to sleep there comes back late: a step of a small model takes 0.95 ms instead
of 0.75. But on a core that somebody else needs, too, spinning keeps the very thread away that is waited for: a step of
8 ms then takes 800 instead of 120. llama-server has the first of it, which is why two of them on the same cores stall.

libgomp reads how long to spin when it starts (GOMP_SPINCOUNT; 10,000 rounds are half a millisecond), but as long as a
process has more OpenMP threads than cores, it spins for 1,000 at most (with OMP_WAIT_POLICY=active). So the switch is one
more team of threads, which sleep.

Whether cores are shared the kernel says: how long threads that could run had to wait for one. With the instance's event
loop and a client beside them it is a tenth of their time, with one other process that computes nearly a half.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from llamad.engine import openmp

log = logging.getLogger(__name__)

LOOK_S = 0.1
"""Between two looks: a wrong guess does not last longer than this, or than a step."""
ENOUGH_S = 0.05
"""What threads must have run and waited since for a look to say anything."""
CALM_LOOKS = 5
"""So many looks in a row must find cores unshared before threads spin long."""
CROWDED, CALM = 0.25, 0.15
"""Part of their time that threads wait for a core: above the one, cores are shared, below the other, they are not."""
_TASKS = Path("/proc/self/task")
_THREADS_MAX = 32
"""Threads that are looked at: 5 us each."""


class Times(NamedTuple):
    """How long a thread, or several, ran, and waited for a core while they could have run, in s."""

    ran_s: float
    waited_s: float

    @property
    def total_s(self) -> float:
        return self.ran_s + self.waited_s


def elapsed(before: Mapping[int, Times], now: Mapping[int, Times]) -> Times:
    """What threads did between two looks, by their ids. Of those that have ended nothing is known."""
    began = Times(0.0, 0.0)
    pairs = [(before.get(id, began), times) for id, times in now.items()]
    return Times(
        sum(after.ran_s - earlier.ran_s for earlier, after in pairs),
        sum(after.waited_s - earlier.waited_s for earlier, after in pairs),
    )


class Verdict:
    """Are the cores shared? Pure. They are, until they have been found not to be for a while."""

    def __init__(self) -> None:
        self.crowded = True
        self._n_calm = 0

    def judge(self, since: Times) -> bool:
        """Whether the cores are shared, by what happened since the last time."""
        share = since.waited_s / since.total_s
        self._n_calm = self._n_calm + 1 if share < CALM else 0
        if share > CROWDED:
            self.crowded = True
        elif self._n_calm >= CALM_LOOKS:
            self.crowded = False
        return self.crowded


class Spinning:
    """The switch. `look` belongs to the thread that computes; `n_threads` is how many compute with it, itself included."""

    def __init__(
        self,
        n_threads: int,
        times: Callable[[], Mapping[int, Times]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._times = times or of_threads
        self._clock = clock
        # With one more than there are cores libgomp spins short. Of the new team its first thread is counted already.
        self._n_more = max(2, len(os.sched_getaffinity(0)) - n_threads + 2)
        self._verdict = Verdict()
        self._looked_at = clock()
        self._before = self._times()
        self._calm = threading.Event()
        self._holder: threading.Thread | None = None
        self._set(short=True)

    @property
    def short(self) -> bool:
        """Whether threads that wait go to sleep soon."""
        return self._holder is not None

    def look(self) -> None:
        """To be called after each step: looks every LOOK_S."""
        now = self._clock()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        times = self._times()
        since = elapsed(self._before, times)
        if since.total_s < ENOUGH_S:
            return
        self._before = times
        self._set(short=self._verdict.judge(since))

    def close(self) -> None:
        """Let go of the threads that the switch has."""
        self._set(short=False)

    def _set(self, short: bool) -> None:
        if short == self.short:
            return
        if self._holder is not None:
            self._calm.set()
            self._holder.join()
            self._holder = None
        else:
            self._calm.clear()
            self._holder = threading.Thread(target=self._hold, name="spinning", daemon=True)
            self._holder.start()
        log.debug("threads that wait for each other spin %s", "short" if short else "long")

    def _hold(self) -> None:
        openmp.begin(self._n_more)
        self._calm.wait()
        openmp.let_go()


def of_threads() -> dict[int, Times]:
    """Of this process's threads, without its first, which has the event loop. proc(5): schedstat, in ns."""
    found = {}
    for id in sorted({int(name) for name in os.listdir(_TASKS)} - {os.getpid()})[:_THREADS_MAX]:
        try:
            ran, waited, _ = (_TASKS / str(id) / "schedstat").read_bytes().split()
        except (OSError, ValueError):
            continue  # The thread has ended, or this kernel does not count.
        found[id] = Times(int(ran) / 1e9, int(waited) / 1e9)
    return found
