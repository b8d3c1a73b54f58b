"""Deadlines by subject. Setting a subject again replaces its deadline; a cleared one never fires.

A heap with lazy deletion: setting and clearing are O(log n), the heap is rebuilt when stale entries outnumber live ones.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Subject = TypeVar("Subject", bound=Hashable)

_STALE_MIN = 64


class Timers(Generic[Subject]):
    """Fires subjects in order of deadline, equal deadlines in the order they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Subject]] = []
        self._live: dict[Subject, tuple[float, int]] = {}
        self._number = 0

    def set(self, subject: Subject, at: float) -> None:
        """Fire `subject` at `at`, and not at any time set before."""
        self._number += 1
        self._live[subject] = (at, self._number)
        heappush(self._heap, (at, self._number, subject))
        if len(self._heap) > 2 * len(self._live) + _STALE_MIN:
            self._heap = [(at, number, subject) for subject, (at, number) in self._live.items()]
            heapify(self._heap)

    def clear(self, subject: Subject) -> None:
        """Forget `subject`'s deadline, if it has one."""
        self._live.pop(subject, None)

    def get(self, subject: Subject) -> float | None:
        """When `subject` will fire."""
        live = self._live.get(subject)
        return live[0] if live else None

    def next(self) -> float | None:
        """The earliest deadline."""
        while self._heap:
            at, number, subject = self._heap[0]
            if self._live.get(subject) == (at, number):
                return at
            heappop(self._heap)
        return None

    def pop_due(self, now: float) -> list[Subject]:
        """Subjects whose time has come, earliest first; they are cleared."""
        due = []
        while (at := self.next()) is not None and at <= now:
            _, _, subject = heappop(self._heap)
            del self._live[subject]
            due.append(subject)
        return due
