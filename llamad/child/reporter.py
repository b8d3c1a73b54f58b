"""What an instance tells its parent: progress of the load, that it is ready, and its counters."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from llamad.child.link import Link
from llamad.child.titles import Title
from llamad.clock import Clock
from llamad.engine.vocabulary import EngineStats, ModelFacts
from llamad.wire.child import State, Stats

STAGE = "text_model"
PROGRESS_EVERY_S = 0.05
STATS_EVERY_S = 1.0


class LoadReporter:
    """Passes progress on, at most every PROGRESS_EVERY_S."""

    def __init__(self, link: Link, title: Title, clock: Clock) -> None:
        self._link = link
        self._title = title
        self._clock = clock
        self._next_at = 0.0

    def progressed(self, value: float) -> None:
        """`value` 0.0 to 1.0 of the weights are there."""
        now = self._clock.monotonic()
        if now < self._next_at and value < 1.0:
            return
        self._next_at = now + PROGRESS_EVERY_S
        self._title.show(f"loading {value:.0%}")
        self._link.send(State("loading", {"stages": [STAGE], "current": STAGE, "value": round(value, 4)}))


def ready_payload(address: str, facts: ModelFacts) -> dict[str, Any]:
    """The payload of `ready`, see ARCHITECTURE 3.1. `bytes` is what the process holds now."""
    return {
        "address": address,
        "n_ctx": facts.n_ctx,
        "n_ctx_slot": facts.n_ctx_slot,
        "n_slots": facts.n_slots,
        "bytes": {"host": resident_bytes()},
        "meta": {
            "architecture": facts.architecture,
            "description": facts.description,
            "n_vocab": facts.n_vocab,
            "n_ctx_train": facts.n_ctx_train,
            "n_embd": facts.n_embd,
            "n_params": facts.n_params,
            "size": facts.size_bytes,
        },
    }


def resident_bytes() -> int:
    """Resident memory of this process (proc(5), statm)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


async def report_stats(link: Link, read: Callable[[], EngineStats]) -> None:
    """Send the counters when they have changed, at most every STATS_EVERY_S, for ever.

    `steps` moves with every decode call: a busy instance whose steps stand still is stuck.
    """
    last: EngineStats | None = None
    while True:
        stats = read()
        if stats != last:
            last = stats
            link.send(Stats(asdict(stats)))
        await asyncio.sleep(STATS_EVERY_S)
