"""The last decisions about each model, for `why`. The ring of all events may have lost those of a quiet model."""

from __future__ import annotations

from collections import deque
from typing import Any

from llamad.clock import Clock
from llamad.core.actions import Note

KEPT_MAX = 20


class Decisions:
    """By model, the newest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notes: dict[str, deque[tuple[float, float, Note]]] = {}

    def note(self, note: Note) -> None:
        """Those that are about no model are left out."""
        if note.model:
            notes = self._notes.setdefault(note.model, deque(maxlen=KEPT_MAX))
            notes.appendleft((self._clock.wall(), self._clock.monotonic(), note))

    def documents(self, model: str) -> list[dict[str, Any]]:
        """`{"time", "ago_s", "kind", "text", ...numbers}` each; a number never hides one of the fixed fields."""
        now = self._clock.monotonic()
        return [
            {
                **note.numbers,
                "time": round(wall, 3),
                "ago_s": round(now - at, 3),
                "kind": note.kind,
                "text": note.text,
            }
            for wall, at, note in self._notes.get(model, ())
        ]

    def keep(self, models: set[str]) -> None:
        """Forget all others."""
        for name in self._notes.keys() - models:
            del self._notes[name]
