"""Leaving out, before the C chain, candidates that its first stage is certain to drop. Pure.

Copying a whole vocabulary into C's structures and sorting it is most of the cost of a token. Both filters here give a
superset of what the first stage keeps, in the order of token ids, so the chain's result is the same token from the same
random number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from llamad.engine.stages import Stage

Row = npt.NDArray[np.float32]
"""Logits by token id, or of a part of the vocabulary."""
Ids = npt.NDArray[Any]
"""Indices into a row, ascending."""

# Strided blocks: the maximum over axis 0 of a (64, n / 64) view is computed by SIMD, the other axis is not.
_BLOCK = 64
# llama.cpp's threshold is computed in single precision; ours must not be above it.
_SLACK = 1e-3


def sieve(first: Stage) -> Callable[[Row], Ids | None]:
    """What gives a superset of what the stage keeps of a row, or None where there is no cheap one."""
    match first.name:
        case "top_k":
            return partial(largest, k=first.args[0])
        case "min_p" if first.args[1] <= 1:
            return partial(near_the_best, p=first.args[0])
    return _all


def _all(row: Row) -> None:
    return None


def largest(row: Row, k: int) -> Ids | None:
    """A superset of the `k` largest entries, or None where finding one is not worth it or not possible (NaN).

    The k-th largest of the maxima of disjoint blocks is never above the k-th largest entry. Entries of minus infinity
    count for nothing.
    """
    width = row.size // _BLOCK
    if not 0 < k <= width:
        return None
    blocks = row[: width * _BLOCK].reshape(_BLOCK, width)
    maxima = np.maximum.reduce(blocks, axis=0)
    ordered = maxima.copy()
    ordered.partition(width - k)
    bound = float(ordered[width - k])
    if bound == -np.inf:
        return np.flatnonzero(row > bound)
    # Few blocks reach the bound, and only these are looked into. Line by line, so the ids come out ascending.
    reaching = (maxima >= bound).nonzero()[0]
    lines, places = (blocks.take(reaching, axis=1) >= bound).nonzero()
    ids = lines * width + reaching[places]
    n_blocked = width * _BLOCK
    if row.size > n_blocked:
        ids = np.concatenate((ids, (row[n_blocked:] >= bound).nonzero()[0] + n_blocked))
    return ids if ids.size >= k else None


def near_the_best(row: Row, p: float) -> Ids | None:
    """A superset of the entries whose probability is at least `p` times the best one's."""
    if not 0.0 < p <= 1.0:
        return None
    bound = float(row.max()) + float(np.log(p))
    return np.flatnonzero(row >= bound - _SLACK) if np.isfinite(bound) else None
