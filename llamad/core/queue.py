"""The queue: models that want room, in order of first arrival.

Its entries are models, not requests: all requests for one model share one entry and one load. A model stands here from
the first request that cannot be served until its process is spawned or nobody wants it any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """`number` rises with each arrival; `since` is when the model joined."""

    number: int
    since: float


class Queue:
    """An ordered set of model names. Joining twice keeps the first place."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._numbers = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, model: str) -> bool:
        return model in self._entries

    def join(self, model: str, now: float) -> None:
        """Stand at the end, unless already in the queue."""
        if model not in self._entries:
            self._numbers += 1
            self._entries[model] = Entry(self._numbers, now)

    def leave(self, model: str) -> None:
        """Give up the place, if there is one."""
        self._entries.pop(model, None)

    def since(self, model: str) -> float:
        """When `model` joined."""
        return self._entries[model].since

    def position(self, model: str) -> int:
        """At most so many models are served up to and with this one; exact unless one ahead has given up.

        O(1): arrivals are numbered, and only the head's number is looked at.
        """
        head = next(iter(self._entries.values()))
        return min(self._entries[model].number - head.number + 1, len(self._entries))
