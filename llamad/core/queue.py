"""The queue: models that want room, in order of first arrival.

Its entries are models, not requests: all requests for one model share one entry and one load. A model stands here from
the first request that cannot be served until its process is spawned or nobody wants it any more.

Priority is a head start: a model stands where it would had it come `PRIORITY_STEP_S` earlier for each step. All age
alike, so an entry of low priority is passed only by those that come within its disadvantage, never for ever.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

PRIORITY_STEP_S = 30.0


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Sorts as the queue does. `since` is when the model really joined."""

    rank_s: float
    number: int
    model: str
    since: float


class Queue:
    """An ordered set of model names. Joining twice keeps the first place."""

    def __init__(self) -> None:
        self._order: list[Entry] = []
        self._entries: dict[str, Entry] = {}
        self._numbers = 0
        self.stirred = False
        """Somebody has joined or left since this was last reset."""

    def __iter__(self) -> Iterator[str]:
        return (entry.model for entry in self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, model: str) -> bool:
        return model in self._entries

    def join(self, model: str, now: float, priority: int = 0, behind: str = "") -> None:
        """Take the place that arrival and priority give, unless already in the queue; never one before `behind`'s."""
        if model not in self._entries:
            self._numbers += 1
            rank_s = now - priority * PRIORITY_STEP_S
            if behind in self._entries:
                rank_s = max(rank_s, self._entries[behind].rank_s)
            entry = Entry(rank_s, self._numbers, model, now)
            self._entries[model] = entry
            self.stirred = True
            insort(self._order, entry)

    def leave(self, model: str) -> None:
        """Give up the place, if there is one."""
        entry = self._entries.pop(model, None)
        if entry is not None:
            self.stirred = True
            del self._order[bisect_left(self._order, entry)]

    def since(self, model: str) -> float:
        """When `model` joined."""
        return self._entries[model].since

    def position(self, model: str) -> int:
        """1 is the head. O(log n)."""
        return bisect_left(self._order, self._entries[model]) + 1
