"""States of prompts in the host's memory, within a bound: what slots had to forget, and checkpoints of what they have. Pure.

A *state* is what the context's memory has of a sequence, as bytes. A *checkpoint* is the part of it that cannot be cut
back later (the window of a sliding-window model, the state of a recurrent one), as it was after so many tokens: with it
a request that parts from an earlier one behind that point need not begin anew.

Whoever was of use least recently goes first, whatever it is. What has gone is empty (`Blob.data` is None); whoever has it
finds out when he looks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from llamad.engine import prefix
from llamad.engine.vocabulary import Adapters

Bytes = npt.NDArray[np.uint8]


class Blob:
    """Bytes that may go."""

    def __init__(self, data: Bytes) -> None:
        self.data: Bytes | None = data


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What can't be cut back, as it was when the sequence had `n_past` tokens."""

    n_past: int
    blob: Blob


@dataclass(slots=True)
class Kept:
    """A sequence that a slot had to forget: all of its state, and its checkpoints in order."""

    tokens: list[int]
    adapters: Adapters
    blob: Blob
    checkpoints: list[Checkpoint] = field(default_factory=list)


class HostMemory:
    """At most `limit_bytes` of blobs. Belongs to the engine's thread."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._blobs: OrderedDict[Blob, None] = OrderedDict()
        self._kept: list[Kept] = []

    @property
    def kept(self) -> Sequence[Kept]:
        """The sequences that are there."""
        self._kept = [kept for kept in self._kept if kept.blob.data is not None]
        return self._kept

    def make_room(self, n_bytes: int) -> bool:
        """Let go of what was of no use for longest until so much more fits; False where it never does."""
        if n_bytes > self.limit_bytes:
            return False
        while self.used_bytes + n_bytes > self.limit_bytes:
            self.drop(next(iter(self._blobs)))
        return True

    def add(self, data: Bytes) -> Blob | None:
        """Keep these bytes, if they fit."""
        if not self.make_room(data.nbytes):
            return None
        blob = Blob(data)
        self._blobs[blob] = None
        self.used_bytes += data.nbytes
        return blob

    def touch(self, blob: Blob) -> Bytes | None:
        """The bytes, which were of use just now; None if they have gone."""
        if blob in self._blobs:
            self._blobs.move_to_end(blob)
        return blob.data

    def drop(self, blob: Blob) -> None:
        """Let go of these bytes."""
        if blob in self._blobs:
            del self._blobs[blob]
            assert blob.data is not None
            self.used_bytes -= blob.data.nbytes
            blob.data = None

    def release(self, checkpoint: Checkpoint) -> None:
        """A slot needs this checkpoint no more; a sequence that is kept may."""
        if not any(checkpoint in kept.checkpoints for kept in self.kept):
            self.drop(checkpoint.blob)

    def keep(self, kept: Kept) -> None:
        """Remember a sequence; others that are beginnings of it are not needed any more."""
        for other in self.kept:
            if other.adapters == kept.adapters and prefix.common(other.tokens, kept.tokens) == len(
                other.tokens
            ):
                self.forget(other)
        self._kept.append(kept)

    def forget(self, kept: Kept) -> None:
        """Let go of a sequence and its checkpoints."""
        for blob in (kept.blob, *(checkpoint.blob for checkpoint in kept.checkpoints)):
            self.drop(blob)


def latest(checkpoints: Sequence[Checkpoint], n_past_max: int) -> Checkpoint | None:
    """The last one that is there with at most so many tokens."""
    usable = [each for each in checkpoints if each.n_past <= n_past_max and each.blob.data is not None]
    return max(usable, key=lambda each: each.n_past, default=None)
