"""Inputs on their way to vectors: whose tokens the next batch has, and what has come of them. Decides and collects.

An *input* takes one of the sequences that no slot uses, is evaluated in one piece or several, and leaves nothing in the
memory. Requests take turns, an input each, so one of thousands of inputs does not hold up the next of one. Their inputs
share batches: what is short costs little beside what is long.

Generation goes first where memory is short: inputs give way and begin again (`embed_turn` has the theory).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from llamad.engine.backend import Backend, Entry
from llamad.engine.embedding import Matrix, Pool, normalized, pool_of
from llamad.engine.shape import Embedding
from llamad.engine.vocabulary import Adapters, Embedded, EmbedRequest


@dataclass(slots=True)
class _Open:
    """A request with inputs that are not done. `vectors`: what there is of each."""

    request: EmbedRequest
    vectors: list[bytes | None]
    next_input: int = 0
    width: int = 0
    again: list[int] = field(default_factory=list)
    """Inputs that gave way."""

    @property
    def has_more(self) -> bool:
        return bool(self.again) or self.next_input < len(self.request.inputs)

    def take(self) -> int:
        if self.again:
            return self.again.pop()
        self.next_input += 1
        return self.next_input - 1


@dataclass(slots=True)
class Input:
    """One input in a sequence of its own. The first `n_done` tokens are in the memory and in `pool`."""

    owner: _Open
    index: int
    sequence: int
    pool: Pool
    n_done: int = 0

    @property
    def id(self) -> int:
        return self.owner.request.id

    @property
    def adapters(self) -> Adapters:
        return self.owner.request.adapters or ()

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.owner.request.inputs[self.index]

    @property
    def complete(self) -> bool:
        return self.n_done == len(self.tokens)


@dataclass(frozen=True, slots=True)
class Piece:
    """The next `count` tokens of an input."""

    input: Input
    count: int

    @property
    def entry(self) -> Entry:
        start = self.input.n_done
        return Entry(self.input.sequence, start, self.input.tokens[start : start + self.count], True)


class Embedder:
    """See above. Belongs to the engine's thread."""

    def __init__(self, backend: Backend, how: Embedding) -> None:
        self._backend = backend
        self._how = how
        self._free = list(reversed(how.sequences))
        self._inputs: list[Input] = []
        self._open: deque[_Open] = deque()

    @property
    def at_rest(self) -> bool:
        return not self._open

    @property
    def n_busy(self) -> int:
        """Requests that are being worked on."""
        return len({input.id for input in self._inputs})

    def wait(self, request: EmbedRequest) -> None:
        """Queue a request."""
        self._open.append(_Open(request, [None] * len(request.inputs)))

    def cancel(self, ids: Collection[int]) -> None:
        """Drop these requests."""
        for input in [input for input in self._inputs if input.id in ids]:
            self._leave(input)
        self._open = deque(each for each in self._open if each.request.id not in ids)

    def plan(self, room: int) -> list[Piece]:
        """The next batch: inputs that have begun, in their order, then new ones as far as `room` tokens go.

        An input that must go whole and is longer goes alone. All in a batch have the same adapters.
        """
        pieces: list[Piece] = []
        for input in self._inputs:
            count = self._count(input, room, alone=not pieces)
            if count and (not pieces or input.adapters == pieces[0].input.adapters):
                pieces.append(Piece(input, count))
                room -= count
        while room > 0 and (begun := self._begin(room, pieces[0].input if pieces else None)):
            count = self._count(begun, room, alone=not pieces)
            pieces.append(Piece(begun, count))
            room -= count
        return pieces

    def advance(self, pieces: Sequence[Piece]) -> tuple[list[Embedded], set[int]]:
        """The batch has been evaluated: take its vectors. The requests that are complete, and those that cannot be.

        A vector that is not finite is one of the latter: it is written as no number in JSON, and breaks its reader.
        """
        ranks = self._how.pooling == "rank"
        rows = None if ranks else self._backend.hidden()
        end = 0
        broken = set()
        for piece in pieces:
            input, begin, end = piece.input, end, end + piece.count
            input.n_done += piece.count
            if rows is not None:
                input.pool.push(rows[begin:end])
            elif input.complete:
                input.pool.push(self._backend.scores(input.sequence))
            if input.complete and not self._finish(input):
                broken.add(input.id)
        self.cancel(broken)
        return self._complete(), broken

    def give_way(self, but: Input | None = None) -> bool:
        """Take everything of inputs out of the memory, `but` one; False where nothing was in it."""
        held = [input for input in self._inputs if input.n_done and input is not but]
        for input in held:
            self.begin_again(input)
        return bool(held)

    def begin_again(self, input: Input) -> None:
        """Let an input wait for its turn once more, its sequence empty."""
        self._leave(input)
        input.owner.again.append(input.index)

    def drain(self) -> None:
        """Drop everything."""
        self.cancel({each.request.id for each in self._open})

    def _count(self, input: Input, room: int, *, alone: bool) -> int:
        left = len(input.tokens) - input.n_done
        if self._how.whole:
            return left if left <= room or alone else 0
        return min(left, room)

    def _begin(self, room: int, first: Input | None) -> Input | None:
        """Start an input of the request whose turn it is; None where there is none that fits, beside the `first`."""
        if not self._free:
            return None
        for _ in range(len(self._open)):
            each = self._open[0]
            self._open.rotate(-1)
            if not each.has_more or (first and first.adapters != (each.request.adapters or ())):
                continue
            input = Input(
                each,
                each.take(),
                self._free[-1],
                pool_of(each.request.pooling or self._how.pooling or "none"),
            )
            if not self._count(input, room, alone=first is None):
                # The next batch begins with it.
                each.again.append(input.index)
                self._open.rotate(1)
                return None
            self._free.pop()
            self._inputs.append(input)
            return input
        return None

    def _finish(self, input: Input) -> bool:
        """Keep an input's vectors; False where they are none."""
        request = input.owner.request
        vectors: Matrix = input.pool.result()
        self._leave(input)
        if not np.isfinite(vectors).all():
            return False
        if request.dimensions:
            vectors = vectors[:, : request.dimensions]
        input.owner.width = vectors.shape[1]
        input.owner.vectors[input.index] = normalized(vectors, request.normalize).tobytes()
        return True

    def _complete(self) -> list[Embedded]:
        found = []
        for each in [each for each in self._open if not each.has_more]:
            vectors = tuple(vector for vector in each.vectors if vector is not None)
            if len(vectors) == len(each.vectors):
                self._open.remove(each)
                found.append(Embedded(each.request.id, vectors, each.width))
        return found

    def _leave(self, input: Input) -> None:
        self._inputs.remove(input)
        self._free.append(input.sequence)
        self._backend.clear(input.sequence)
