"""What is counted for each model across all its processes: loads, evictions, failures, tokens. Only ever growing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llamad.core.actions import Note
from llamad.daemon.monitor import Instance

DECISIONS = {"load": "loads", "wake": "wakes", "evict": "evictions", "failed": "failures", "sleep": "sleeps"}
"""Kind of a note to what it adds one to."""
COUNTERS = (
    "steps",
    "prompt_tokens",
    "cached_tokens",
    "predicted_tokens",
    "requests_done",
    "requests_cancelled",
    "requests_failed",
    "drafts",
    "drafted_tokens",
    "accepted_tokens",
)
"""Of an instance's statistics, those that only grow while it lives."""


@dataclass(slots=True)
class Tally:
    """One model's."""

    decisions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DECISIONS.values(), 0))
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))


class Tallies:
    """An instance counts from its own start; here what it has added since it was last heard is added."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}

    def of(self, model: str) -> Tally:
        return self._tallies.get(model) or Tally()

    def note(self, note: Note) -> None:
        counted = DECISIONS.get(note.kind)
        if counted and note.model:
            self._tally(note.model).decisions[counted] += 1

    def counted(self, instance: Instance, stats: Mapping[str, Any]) -> None:
        """`stats` is what it says now, `instance.stats` what it said before."""
        counters = self._tally(instance.spec.name).counters
        for name in COUNTERS:
            now, before = _number(stats, name), _number(instance.stats, name)
            # An engine that was put to sleep counts from nothing again.
            counters[name] += now - before if now >= before else now

    def keep(self, models: set[str]) -> None:
        """Forget all others."""
        for name in self._tallies.keys() - models:
            del self._tallies[name]

    def _tally(self, model: str) -> Tally:
        return self._tallies.setdefault(model, Tally())


def _number(stats: Mapping[str, Any], name: str) -> int:
    value = stats.get(name, 0)
    return value if type(value) is int and value >= 0 else 0
