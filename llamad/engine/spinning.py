"""How long OpenMP's threads spin where they wait for each other: long on cores that they have to themselves, else short.

A token takes hundreds of barriers. Who goes to sleep there comes back late: a step of a small model takes 0.95 ms instead
of 0.75. But on a core that somebody else needs, too, spinning keeps the very thread away that is waited for: a step of
8 ms then takes 800 instead of 120. llama-server has the first of it, which is why two of them on the same cores stall.

libgomp reads how long to spin when it starts (GOMP_SPINCOUNT; 40,000 rounds are two milliseconds), but as long as a
process has more OpenMP threads than cores, it spins for 1,000 at most (with OMP_WAIT_POLICY=active). So the switch is one
more team of threads, which sleep.

Whether cores are shared the kernel says: how long threads that could run had to wait for one. With the instance's event
loop and a client beside them it is a tenth of their time, with one other process that computes nearly a half.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from llamad.engine import openmp

log = logging.getLogger(__name__)

LOOK_S = 0.05
"""Between two looks: a wrong guess does not last much longer."""
ENOUGH_S = 0.05
"""What threads must have run and waited since for a look to say anything."""
CALM_LOOKS = 10
"""So many looks in a row must find cores unshared before threads spin long."""
IDLE_LOOKS = 20
"""After so many looks that found nothing to compute there are no more, until there is."""
CROWDED, CALM = 0.25, 0.15
"""Part of their time that threads wait for a core: above the one, cores are shared, below the other, they are not."""
_TASKS = Path("/proc/self/task")
_THREADS_MAX = 32
"""Threads that are looked at: 5 us each."""


class Times(NamedTuple):
    """How long a thread, or several, ran, and waited for a core while they could have run, in s."""

    ran_s: float
    waited_s: float


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
        share = since.waited_s / (since.ran_s + since.waited_s)
        self._n_calm = self._n_calm + 1 if share < CALM else 0
        if share > CROWDED:
            self.crowded = True
        elif self._n_calm >= CALM_LOOKS:
            self.crowded = False
        return self.crowded


class Spinning:
    """The switch: a thread of its own, as a step on shared cores may take long. It looks while there is something to compute.

    `begin` and `end` belong to the thread that computes; `n_threads` is how many compute with it, itself included.
    """

    def __init__(
        self,
        n_threads: int,
        times: Callable[[], Mapping[int, Times]] | None = None,
        look_s: float = LOOK_S,
    ) -> None:
        self._times = times or of_threads
        self._look_s = look_s
        # With one more than there are cores libgomp spins short. Of the new team its first thread is counted already.
        self._n_more = max(2, len(os.sched_getaffinity(0)) - n_threads + 2)
        self._working = self._parked = self._closed = False
        self._wake = threading.Event()
        self.short = False
        """Whether threads that wait go to sleep soon."""
        self._thread = threading.Thread(target=self._watch, name="spinning", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """A step begins."""
        self._working = True
        if self._parked:
            self._wake.set()

    def end(self) -> None:
        """It is over."""
        self._working = False

    def close(self) -> None:
        """Let go of the threads that the switch has."""
        self._closed = True
        self._wake.set()
        self._thread.join()

    def _watch(self) -> None:
        verdict, before, n_idle = Verdict(), self._times(), 0
        self._switch(short=verdict.crowded)
        while not self._closed:
            if n_idle >= IDLE_LOOKS:
                self._park()
                n_idle = 0
            self._wake.wait(self._look_s)
            n_idle = 0 if self._working else n_idle + 1
            now = self._times()
            since = elapsed(before, now)
            if since.ran_s + since.waited_s >= ENOUGH_S:
                before = now
                self._switch(short=verdict.judge(since))
        self._switch(short=False)

    def _park(self) -> None:
        """Sleep until a step begins, without a timer."""
        self._parked = True
        if not (self._working or self._closed):
            self._wake.wait()
        self._parked = False
        if not self._closed:
            self._wake.clear()

    def _switch(self, short: bool) -> None:
        if short == self.short:
            return
        if short:
            openmp.begin(self._n_more)
        else:
            openmp.let_go()
        self.short = short
        log.debug("threads that wait for each other spin %s", "short" if short else "long")


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
