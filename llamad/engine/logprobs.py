"""How likely a chosen token was, and which others were: llama-server's `n_probs`. Pure.

Two questions are answered. Before sampling: the model's own distribution, the softmax of the logits as they came.
After sampling: what the draw was made from, when bias, penalties and truncation had done their work.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from llamad.engine.narrow import Ids, Row, largest

LOG_ZERO = -9999.0
"""The logarithm of nothing. JSON has no infinity; OpenAI's clients know this number."""

T = TypeVar("T")


class Ranked(NamedTuple):
    """`value`: of the chosen token. `top`: token ids and values, largest first. Logarithms before sampling only."""

    value: float
    top: tuple[tuple[int, float], ...]


def before_sampling(row: Row, token: int, n: int) -> Ranked:
    """From the model's logits."""
    best = float(row.max())
    total = best + float(np.log(np.exp(row - best).sum(dtype=np.float64)))
    return Ranked(
        _logarithm(float(row[token]) - total),
        tuple((id, _logarithm(float(row[id]) - total)) for id in _first(row, n)),
    )


def after_sampling(ids: Ids, chances: npt.NDArray[np.float32], token: int, n: int) -> Ranked:
    """From the candidates that were left for the draw. Those without a chance are not told."""
    order = np.argsort(-chances, kind="stable")[:n]
    top = tuple((int(ids[i]), float(chances[i])) for i in order if chances[i] > 0)
    return Ranked(float(chances[ids == token].sum()), top)


def _first(row: Row, n: int) -> list[int]:
    """The `n` largest, of equals the lower id first."""
    if n <= 0:
        return []
    ids = largest(row, n)
    if ids is None:
        ids = np.arange(row.size)
    order = np.argsort(-row[ids], kind="stable")[:n]
    return [int(id) for id in ids[order]]


def _logarithm(value: float) -> float:
    # Also takes care of NaN, which compares with nothing.
    return value if value > LOG_ZERO else LOG_ZERO


class Held(Generic[T]):
    """What belongs to tokens whose text is still held back; it is given out together with the text.

    Positions count characters from the start of the answer. A token that ends in the middle of a character belongs to
    that character.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, T]] = deque()

    def push(self, item: T, end: int) -> None:
        """An item whose text ends at `end`."""
        self._waiting.append((end, item))

    def release(self, end: int) -> tuple[T, ...]:
        """The items whose text is complete when the text up to `end` is out."""
        items = []
        while self._waiting and self._waiting[0][0] <= end:
            items.append(self._waiting.popleft()[1])
        return tuple(items)

    def rest(self) -> tuple[T, ...]:
        """All that is left."""
        items = tuple(item for _, item in self._waiting)
        self._waiting.clear()
        return items
