"""Virtual time: what is going to happen, in order. Time may also leap: the machine slept, and nobody noticed."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Agenda:
    """A heap of things to come. Of things due at the same time the one noted first comes first."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.leapt_s = 0.0
        """How much of the time so far passed in leaps."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0

    def later(self, after_s: float, happen: Callable[[], None]) -> None:
        self._numbers += 1
        heappush(self._heap, (self.now + after_s, self._numbers, happen))

    def next(self) -> float | None:
        """When the next thing happens."""
        return self._heap[0][0] if self._heap else None

    def pop(self) -> Callable[[], None]:
        """The next thing, which the caller lets happen."""
        return heappop(self._heap)[2]

    def move(self, at: float) -> None:
        """Time never goes back."""
        self.now = max(self.now, at)

    def leap(self, seconds: float) -> None:
        """What was due meanwhile is late."""
        self.now += seconds
        self.leapt_s += seconds

    @property
    def awake_s(self) -> float:
        """Time without the leaps."""
        return self.now - self.leapt_s
