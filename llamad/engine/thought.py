"""A bound on what a model thinks before it answers. Pure, but for the word that another thread may say.

It is a constraint around another one, or around none: while the thought goes on, its tokens are counted, and when they are
spent, or somebody has said that it is enough, only the tokens of its ending are allowed, one after another. Whether a thought begins and ends is seen in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from llamad.engine.narrow import Ids, Row
from llamad.engine.sampling import Constraint
from llamad.engine.vocabulary import ThoughtLimit, Word


class BoundedThought:
    """See `sampling.Constraint`. `ending`: the tokens of the limit's ending. `piece`: a token's bytes in this answer."""

    def __init__(
        self,
        limit: ThoughtLimit,
        ending: Sequence[int],
        piece: Callable[[int], bytes],
        inner: Constraint | None,
    ) -> None:
        self._opens = limit.opens.encode()
        self._closes = [mark.encode() for mark in (limit.closes, *limit.others)]
        self._n_kept = max(map(len, self._closes))
        self._n_left = limit.budget
        self._enough = limit.enough or Word()
        self._ending = list(ending)
        self._piece = piece
        self._inner = inner
        self._thinking = not self._opens
        self._over = False
        """No thought can begin, or go on, any more."""
        self._text = b""

    @property
    def complete(self) -> bool:
        return self._inner is not None and self._inner.complete

    def take(self, token: int) -> bool:
        forced = self._forced
        if forced is not None and token != forced:
            return False
        if self._inner is not None and not self._inner.take(token):
            return False
        if forced is not None:
            self._ending.pop(0)
            self._over = not self._ending
        elif not self._over:
            self._look_at(token)
        return True

    def allowed(self, row: Row, k: int) -> Ids:
        if self._forced is not None:
            return np.array([self._forced], np.int64)
        return self._inner.allowed(row, k) if self._inner is not None else np.arange(row.size)

    @property
    def _forced(self) -> int | None:
        ends = self._thinking and not self._over and (self._n_left <= 0 or self._enough.said)
        return self._ending[0] if ends and self._ending else None

    def _look_at(self, token: int) -> None:
        self._text += self._piece(token)
        if self._thinking:
            self._n_left -= 1
            self._over = any(mark in self._text for mark in self._closes)
            # A mark that is not whole yet may be in what is kept.
            self._text = self._text[-self._n_kept :]
            return
        head = self._text.lstrip()
        self._thinking = head.startswith(self._opens)
        self._over = not self._thinking and not self._opens.startswith(head)
        if self._thinking:
            self._text = b""
