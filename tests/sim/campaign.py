"""Many worlds, one after another or several at once, until there have been enough steps or one breaks a promise."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import count

from tests.sim.promises import Broken
from tests.sim.world import World

HAPPENINGS = 400
"""Of one world, before it settles."""


@dataclass(frozen=True)
class Totals:
    """What so many worlds have seen. `failure` is the whole story of the one that broke a promise."""

    worlds: int = 0
    steps: int = 0
    longest_wait_s: float = 0.0
    longest_calm_s: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)
    failed_seed: int | None = None
    failure: str = ""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.worlds + other.worlds,
            self.steps + other.steps,
            max(self.longest_wait_s, other.longest_wait_s),
            max(self.longest_calm_s, other.longest_calm_s),
            self.seen + other.seen,
            self.failed_seed if self.failed_seed is not None else other.failed_seed,
            self.failure or other.failure,
        )


def live(seed: int, chaos: float | None = None) -> Totals:
    """One world from its beginning to its end."""
    world = World(seed, chaos=chaos)
    failure = ""
    try:
        world.live(HAPPENINGS)
        world.settle()
        world.stop()
    except (Broken, AssertionError, LookupError) as error:
        failure = f"{world.transcript}\n{type(error).__name__}: {error}"
    totals = Totals(1, world.steps, world.longest_wait_s(), world.promises.waits.longest_calm_s, world.seen)
    return replace(totals, failed_seed=seed, failure=failure) if failure else totals


@dataclass
class Campaign:
    """Worlds from `seed` on: `worlds` of them, else until `events` steps, and never longer than `seconds`."""

    seed: int
    events: int
    worlds: int | None = None
    seconds: float | None = None
    jobs: int = 1
    chaos: float | None = None
    progress: Callable[[Totals], None] = lambda totals: None

    def run(self) -> Totals:
        self._began = time.monotonic()
        if self.jobs > 1:
            return self._run_several()
        totals = Totals()
        for seed in self._seeds():
            totals = totals + live(seed, self.chaos)
            self.progress(totals)
            if self._enough(totals):
                break
        return totals

    def _seeds(self) -> Iterator[int]:
        return iter(range(self.seed, self.seed + self.worlds)) if self.worlds else count(self.seed)

    def _enough(self, totals: Totals) -> bool:
        late = self.seconds is not None and time.monotonic() - self._began >= self.seconds
        return late or bool(totals.failure) or (self.worlds is None and totals.steps >= self.events)

    def _run_several(self) -> Totals:
        """At most two worlds a job wait, so an early end wastes little."""
        totals, seeds = Totals(), self._seeds()
        with ProcessPoolExecutor(self.jobs) as pool:
            pending: set[Future[Totals]] = set()
            while not self._enough(totals):
                for seed in seeds:
                    pending.add(pool.submit(live, seed, self.chaos))
                    if len(pending) >= 2 * self.jobs:
                        break
                if not pending:
                    break
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                totals = sum((future.result() for future in done), start=totals)
                self.progress(totals)
            pool.shutdown(cancel_futures=True)
        return totals
