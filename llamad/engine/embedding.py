"""From what a model computes for each token of an input to the vectors that are asked for. Pure.

llama.cpp can pool by itself, but then an input has to be evaluated in one piece, and with a split KV cache several inputs
in one batch come out wrong. So it is asked for every token's vector, and pooling is done here: inputs may come in pieces,
and beside others. Only what a classifier head makes of them (`rank`) has to come from llama.cpp.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
"""A row for each token, or for each vector."""

POOLINGS = ("none", "mean", "cls", "last", "rank")
"""In llama.cpp's order: `llama_pooling_type` counts from 0."""
# llama.cpp's scale of normalised int16 values.
_INT16_MAX = 32760.0


class Pool(Protocol):
    """Takes the rows of one input, piece by piece, in order."""

    def push(self, rows: Matrix) -> None:
        """The next rows, at least one; they are not kept."""
        ...

    def result(self) -> Matrix:
        """What has come of them: one row, or one a token."""
        ...


def pool_of(pooling: str) -> Pool:
    """A new one of this kind; `rank` gives the last row, which is the only one there."""
    kinds: dict[str, type[Pool]] = {
        "none": _Every,
        "mean": _Mean,
        "cls": _First,
        "last": _Last,
        "rank": _Last,
    }
    return kinds[pooling]()


class _Every:
    def __init__(self) -> None:
        self._parts: list[Matrix] = []

    def push(self, rows: Matrix) -> None:
        self._parts.append(rows.copy())

    def result(self) -> Matrix:
        return np.concatenate(self._parts)


class _Mean:
    def __init__(self) -> None:
        self._sum: Any = 0.0
        self._count = 0

    def push(self, rows: Matrix) -> None:
        self._sum = self._sum + rows.sum(axis=0, dtype=np.float64)
        self._count += len(rows)

    def result(self) -> Matrix:
        return np.asarray(self._sum / self._count, np.float32)[np.newaxis]


class _First:
    def __init__(self) -> None:
        self._row: Matrix | None = None

    def push(self, rows: Matrix) -> None:
        if self._row is None:
            self._row = rows[:1].copy()

    def result(self) -> Matrix:
        assert self._row is not None
        return self._row


class _Last:
    def push(self, rows: Matrix) -> None:
        self._row = rows[-1:].copy()

    def result(self) -> Matrix:
        return self._row


def normalized(vectors: Matrix, norm: int) -> Matrix:
    """Each row with length 1 by this norm, as llama-server's `embd_normalize` counts them. A row of zeros stays one.

    -1: as it is; 0: the largest value becomes 32760; 1: taxicab; 2: Euclidean; more: p-norm.
    """
    if norm < 0:
        return vectors
    size = np.abs(vectors).astype(np.float64)
    # The p-norm of what is at most 1 neither overflows nor vanishes, however large p is.
    largest = size.max(axis=-1, keepdims=True)
    if norm == 0:
        length = largest / _INT16_MAX
    else:
        part = np.divide(size, largest, out=np.zeros_like(size), where=largest > 0)
        length = largest * (part**norm).sum(axis=-1, keepdims=True) ** (1.0 / norm)
    unit: Matrix = np.divide(vectors, length, out=np.zeros_like(size), where=length > 0).astype(np.float32)
    return unit
