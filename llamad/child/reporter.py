"""What an instance tells its parent, and whoever looks at its title: how far it is, what it holds, its counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from llamad.child.link import Link
from llamad.child.titles import Title
from llamad.clock import Clock
from llamad.engine import breakdown
from llamad.engine.vocabulary import EngineStats, ModelFacts
from llamad.wire.child import HEARTBEAT_S, State, Stats

STAGE = "text_model"
PROGRESS_EVERY_S = 0.05
STATS_EVERY_S = 1.0


class Reporter:
    """Sends the states of an instance, from any thread."""

    def __init__(self, link: Link, title: Title, clock: Clock) -> None:
        self._link = link
        self._title = title
        self._clock = clock
        self._next_at = 0.0

    def progressed(self, value: float) -> None:
        """`value` 0.0 to 1.0 of the weights are there. Passed on at most every PROGRESS_EVERY_S."""
        now = self._clock.monotonic()
        if now < self._next_at and 0.0 < value < 1.0:
            return
        self._next_at = now + PROGRESS_EVERY_S
        self._title.show(f"loading {value:.0%}")
        self._link.send(State("loading", {"stages": [STAGE], "current": STAGE, "value": round(value, 4)}))

    def ready(self, address: str, facts: ModelFacts, held: breakdown.Bytes) -> None:
        """Requests are served at `address`; `held` is what the process holds now."""
        self._title.show("loaded")
        self._link.send(State("ready", ready_payload(address, facts, held)))

    def sleeping(self, held: breakdown.Bytes) -> None:
        """Weights and KV are released; `held` is what is left."""
        self._title.show("sleeping")
        self._link.send(State("sleeping", held_payload(held)))

    def stopping(self) -> None:
        """Nothing for the parent: it has asked for it."""
        self._title.show("stopping")


def ready_payload(address: str, facts: ModelFacts, held: breakdown.Bytes) -> dict[str, Any]:
    """The payload of `ready`, see llamad.wire.child."""
    return {
        "address": address,
        "n_ctx": facts.n_ctx,
        "n_ctx_slot": facts.n_ctx_slot,
        "n_slots": facts.n_slots,
        "n_gpu_layers": facts.n_gpu_layers,
        **held_payload(held),
        "meta": {
            "architecture": facts.architecture,
            "description": facts.description,
            "ftype": facts.ftype,
            "vocab_type": facts.vocab_type,
            "n_vocab": facts.n_vocab,
            "n_ctx_train": facts.n_ctx_train,
            "n_embd": facts.n_embd,
            "n_params": facts.n_params,
            "size": facts.size_bytes,
        },
    }


def held_payload(held: breakdown.Bytes) -> dict[str, Any]:
    """Bytes by device, in sum and by purpose."""
    return {"bytes": breakdown.totals(held), "bytes_detail": breakdown.to_document(held)}


class Pulse:
    """Decides which counters are worth a line: those that changed, and those of a busy instance once in a while."""

    def __init__(self) -> None:
        self._last: EngineStats | None = None
        self._sent_at = 0.0

    def beats(self, stats: EngineStats, now: float) -> bool:
        """Whether to send `stats`. Asked every STATS_EVERY_S, it keeps the promise of HEARTBEAT_S."""
        busy = stats.slots_busy + stats.queued > 0
        if stats == self._last and not (busy and now - self._sent_at >= HEARTBEAT_S - 2 * STATS_EVERY_S):
            return False
        self._last, self._sent_at = stats, now
        return True


async def report_stats(link: Link, read: Callable[[], EngineStats], clock: Clock) -> None:
    """Send the counters as Pulse says, for ever."""
    pulse = Pulse()
    while True:
        stats = read()
        if pulse.beats(stats, clock.monotonic()):
            link.send(Stats(asdict(stats)))
        await asyncio.sleep(STATS_EVERY_S)
