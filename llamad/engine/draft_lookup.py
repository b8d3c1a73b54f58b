"""Drafts from what has been said before: of the sequence itself, or of all of them.

No model, no memory to speak of, and hardly any time: 20 us a step for a sequence of 100,000 tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from llamad.engine.drafting import HashSettings, NgramSettings, Wish

KEYS_MAX = 4096
"""N-grams that are known not to be believed."""
TABLE_SIZE = 1 << 20
"""Entries of four bytes."""
_FACTOR = 2654435761

Ids = npt.NDArray[Any]


class History:
    """A sequence as an array, following a list of tokens that grows at its end."""

    def __init__(self) -> None:
        self._buffer = np.empty(1024, np.int32)
        self._count = 0

    @property
    def ids(self) -> Ids:
        return self._buffer[: self._count]

    def follow(self, tokens: Sequence[int]) -> None:
        """Become these tokens, which begin with those that it has: only what is new is looked at."""
        if len(tokens) > self._buffer.size:
            self._buffer = np.concatenate((self.ids, np.empty(2 * len(tokens) - self._count, np.int32)))
        self._buffer[self._count : len(tokens)] = tokens[self._count :]
        self._count = len(tokens)

    def find_last(self, n: int, hits: int = 1) -> int | None:
        """The place behind the last occurrence of what the last `n` tokens are, if there were `hits` before this one."""
        ids = self.ids
        ends = np.flatnonzero(ids[n - 1 : -1] == ids[-1]) + n - 1 if len(ids) > n else ids[:0]
        for back in range(1, n):
            if ends.size < hits:
                return None
            ends = ends[ids[ends - back] == ids[-1 - back]]
        return int(ends[-1]) + 1 if ends.size >= max(1, hits) else None

    def copied(self, start: int, count: int) -> list[int]:
        """`count` tokens from `start` on; what goes beyond the end repeats what was copied, so a loop goes on."""
        known = self.ids[start : start + count]
        tokens: list[int] = np.resize(known, count).tolist()
        return tokens


class _Histories:
    """A History for each slot's sequence."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[tuple[int, int], History]] = {}

    def of(self, wish: Wish) -> History:
        sequence, history = self._held.get(wish.slot, (None, History()))
        if sequence != wish.sequence:
            history = History()
            self._held[wish.slot] = wish.sequence, history
        history.follow(wish.tokens)
        return history


class Ngrams:
    """`ngram-simple`: what followed the last time."""

    cost = 0.0

    def __init__(self, settings: NgramSettings) -> None:
        self._settings = settings
        self._histories = _Histories()

    def draft(self, wishes: Sequence[Wish]) -> list[list[int]]:
        return [self._draft(wish) for wish in wishes]

    def judge(self, task: int, n_drafted: int, n_accepted: int) -> None:
        """It does not learn."""

    def _draft(self, wish: Wish) -> list[int]:
        history, settings = self._histories.of(wish), self._settings
        start = history.find_last(settings.size_n, settings.min_hits) if wish.n_max else None
        return [] if start is None else history.copied(start, min(wish.n_max, settings.size_m))


class LearningNgrams:
    """`ngram-map-k`: the same, but each n-gram is believed only as far as its last draft came true."""

    cost = 0.0

    def __init__(self, settings: NgramSettings) -> None:
        self._settings = settings
        self._histories = _Histories()
        self._believed: OrderedDict[bytes, int] = OrderedDict()
        self._asked: dict[int, bytes] = {}

    def draft(self, wishes: Sequence[Wish]) -> list[list[int]]:
        self._asked.clear()
        return [self._draft(wish) for wish in wishes]

    def judge(self, task: int, n_drafted: int, n_accepted: int) -> None:
        key = self._asked.pop(task, b"")
        if n_accepted < n_drafted:
            self._believed[key] = n_accepted
            self._believed.move_to_end(key)
            if len(self._believed) > KEYS_MAX:
                self._believed.popitem(last=False)

    def _draft(self, wish: Wish) -> list[int]:
        history, settings = self._histories.of(wish), self._settings
        start = history.find_last(settings.size_n, settings.min_hits) if wish.n_max else None
        if start is None:
            return []
        key = history.ids[-settings.size_n :].tobytes()
        count = min(wish.n_max, settings.size_m, self._believed.get(key, settings.size_m))
        self._asked[wish.task] = key
        return history.copied(start, count)


class HashedNgrams:
    """`ngram-mod`: one table for all sequences of what followed on a hash of `n_match` tokens.

    Its size is constant, and what collides is overwritten: a wrong draft costs time only.
    """

    cost = 0.0

    def __init__(self, settings: HashSettings, size: int = TABLE_SIZE) -> None:
        self._settings = settings
        self._next = np.zeros(size, np.int32)
        self._learned: dict[int, tuple[tuple[int, int], int]] = {}

    def draft(self, wishes: Sequence[Wish]) -> list[list[int]]:
        for wish in wishes:
            self._learn(wish)
        return [self._draft(wish) for wish in wishes]

    def judge(self, task: int, n_drafted: int, n_accepted: int) -> None:
        """It does not learn from that."""

    def _learn(self, wish: Wish) -> None:
        """What a sequence has said since it was last looked at."""
        sequence, known = self._learned.get(wish.slot, (None, 0))
        count = self._settings.n_match
        first = max(count, known if sequence == wish.sequence else 0)
        if first < len(wish.tokens):
            ids = np.array(wish.tokens[first - count :], np.uint32)
            places = _hashes(ids[:-1], count) % self._next.size
            # 0 is no entry.
            self._next[places] = ids[count:].astype(np.int32) + 1
        self._learned[wish.slot] = wish.sequence, len(wish.tokens)

    def _draft(self, wish: Wish) -> list[int]:
        settings = self._settings
        n_max = min(wish.n_max, settings.n_max)
        tail, draft = list(wish.tokens[-settings.n_match :]), list[int]()
        if len(tail) < settings.n_match:
            return []
        while len(draft) < n_max:
            place = int(_hashes(np.array(tail, np.uint32), settings.n_match)[0]) % self._next.size
            token = int(self._next[place]) - 1
            if token < 0:
                break
            draft.append(token)
            tail = [*tail[1:], token]
        return draft if len(draft) >= min(settings.n_min, n_max) else []


def _hashes(ids: Ids, count: int) -> Ids:
    """A hash of each `count` numbers in a row, by a linear congruence over 32 bits."""
    hashes = np.zeros(len(ids) - count + 1, np.uint32)
    for offset in range(count):
        hashes = hashes * np.uint32(_FACTOR) + ids[offset : offset + len(hashes)]
    return hashes
