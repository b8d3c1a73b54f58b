#!/usr/bin/env python3
"""What a step of the scheduler costs, from 10 to 10,000 models and queue entries.

Prints microseconds a step for a warm request (ask and release on a loaded model) and for a cold one (ask, eviction,
exit, spawn, ready, release) with that many models configured and waiting, and each as a ratio to the smallest world.
The ratio is what counts: it is to stay near 1, whatever the size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from llamad.core import events as e
from llamad.core.actions import AskExit, Spawn
from llamad.core.events import LeaseKey, Limits, ModelEntry
from llamad.core.scheduler import Scheduler

SIZES = (10, 100, 1000, 10_000)
ROUNDS = 300


def world(size: int, *, queued: bool) -> Scheduler:
    """A scheduler with `size` models, one loaded and busy, and with `queued` all others waiting for room."""
    scheduler = Scheduler()
    entries = tuple(ModelEntry(f"m{i}", (f"alias{i}",)) for i in range(size))
    limits = Limits(models_max=1, max_queued=size + 10, drain_after_s=1e9, queue_timeout_s=0)
    scheduler.step(e.ModelsConfigured(entries, limits), 0.0)
    scheduler.step(e.LeaseAsked(LeaseKey(1, 1), "m0"), 0.0)
    scheduler.step(e.ChildReady(1), 0.0)
    if queued:
        for i in range(1, size):
            scheduler.step(e.LeaseAsked(LeaseKey(1, i + 1), f"m{i}"), 0.0)
    return scheduler


def warm_us(size: int) -> float:
    """Median microseconds of a step, for a request to the loaded model while all others are queued."""
    scheduler, times = world(size, queued=True), []
    for i in range(ROUNDS):
        key = LeaseKey(2, i)
        start = time.perf_counter()
        scheduler.step(e.LeaseAsked(key, "m0"), 1.0)
        scheduler.step(e.LeaseReleased(key), 1.0)
        times.append((time.perf_counter() - start) / 2)
    return statistics.median(times) * 1e6


def cold_us(size: int) -> float:
    """Median microseconds of a step, for requests that each swap one model for another."""
    scheduler, times, child = world(size, queued=False), [], 1
    scheduler.step(e.LeaseReleased(LeaseKey(1, 1)), 1.0)
    for i in range(ROUNDS):
        key = LeaseKey(2, i)
        start = time.perf_counter()
        actions = scheduler.step(e.LeaseAsked(key, f"m{i % (size - 1) + 1}"), 1.0)
        steps = 2
        if any(isinstance(action, AskExit) for action in actions):
            actions = scheduler.step(e.ChildExited(child, 0), 1.0)
            (child,) = (action.child for action in actions if isinstance(action, Spawn))
            scheduler.step(e.ChildReady(child), 1.0)
            steps = 4
        scheduler.step(e.LeaseReleased(key), 1.0)
        times.append((time.perf_counter() - start) / steps)
    return statistics.median(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    options = parser.parse_args()
    rows = [{"models": size, "warm_us": warm_us(size), "cold_us": cold_us(size)} for size in SIZES]
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'models':>8} {'warm step':>12} {'ratio':>6} {'cold step':>12} {'ratio':>6}")
    for row in rows:
        warm, cold = row["warm_us"] / rows[0]["warm_us"], row["cold_us"] / rows[0]["cold_us"]
        print(
            f"{row['models']:>8} {row['warm_us']:>9.1f} us {warm:>6.2f} {row['cold_us']:>9.1f} us {cold:>6.2f}"
        )


if __name__ == "__main__":
    main()
