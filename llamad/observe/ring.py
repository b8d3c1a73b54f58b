"""A bounded ring of numbered entries that can be read from the end and followed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

FOLLOWERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """`seq` counts from 1 and never comes twice, so a reader can tell what it missed."""

    seq: int
    value: T


class Ring(Generic[T]):
    """Keeps the newest entries within `entries_max` and a total weight of `weight_max` (bytes, usually).

    Followers are called with each new entry, in order; they must neither block nor raise.
    """

    def __init__(self, entries_max: int, weight_max: int, weigh: Callable[[T], int]) -> None:
        self._entries: deque[tuple[Entry[T], int]] = deque()
        self._entries_max = entries_max
        self._weight_max = weight_max
        self._weigh = weigh
        self._weight = 0
        self._last_seq = 0
        self._followers: list[Callable[[Entry[T]], None]] = []

    @property
    def last_seq(self) -> int:
        return self._last_seq

    def append(self, value: T) -> Entry[T]:
        self._last_seq += 1
        entry, weight = Entry(self._last_seq, value), self._weigh(value)
        self._entries.append((entry, weight))
        self._weight += weight
        while len(self._entries) > self._entries_max or (
            self._weight > self._weight_max and len(self._entries) > 1
        ):
            self._weight -= self._entries.popleft()[1]
        for follower in tuple(self._followers):
            follower(entry)
        return entry

    def last(self, count: int) -> list[Entry[T]]:
        """The newest `count` entries, oldest first."""
        start = max(0, len(self._entries) - max(0, count))
        return [self._entries[index][0] for index in range(start, len(self._entries))]

    def follow(self, follower: Callable[[Entry[T]], None]) -> Callable[[], None]:
        """Call `follower` with every new entry until the returned function is called. Raises OverflowError."""
        if len(self._followers) >= FOLLOWERS_MAX:
            raise OverflowError(f"cannot follow: {FOLLOWERS_MAX} others do")
        self._followers.append(follower)

        def unfollow() -> None:
            if follower in self._followers:
                self._followers.remove(follower)

        return unfollow


class LineRing(Ring[str]):
    """The last lines of a log."""

    def __init__(self, lines_max: int = 2000, bytes_max: int = 512 * 1024) -> None:
        super().__init__(lines_max, bytes_max, len)

    def tail(self, lines: int, chars: int, after: int = 0) -> str:
        """The last lines with a number above `after` as one text: as many whole ones as have room in `chars`."""
        kept: list[str] = []
        for entry in reversed(self.last(lines)):
            chars -= len(entry.value) + 1
            if entry.seq <= after or (kept and chars < 0):
                break
            kept.append(entry.value)
        return "\n".join(reversed(kept))
