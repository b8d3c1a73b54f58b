"""The event ring: what was decided about which model, when and why, for `llamactl events` and `why`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llamad.observe.ring import Entry, Ring


@dataclass(frozen=True, slots=True)
class Happening:
    """One decision. `time`: seconds since the epoch; `numbers`: what it was decided by; `model` "" for the daemon's own."""

    time: float
    kind: str
    model: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


class EventRing(Ring[Happening]):
    """The last decisions of the daemon."""

    def __init__(self, events_max: int = 1000) -> None:
        super().__init__(events_max, events_max, lambda _: 1)


def to_document(entry: Entry[Happening]) -> dict[str, Any]:
    """`{"seq", "time", "kind", "model", "text", ...numbers}`; a number never hides one of the fixed fields."""
    happening = entry.value
    return {
        **happening.numbers,
        "seq": entry.seq,
        "time": round(happening.time, 3),
        "kind": happening.kind,
        "model": happening.model,
        "text": happening.text,
    }
