"""Vectors, one decode call a turn: carries out what the embedder plans, beside the engine's steps.

What can go wrong in a call, and whom it hurts:

* The memory is full: idle slots forget, then inputs give way to one another and begin again later, down to one token of
  one input. If that does not fit, those that generate have all of it. Those go first: they end, no others begin, and
  then there is room until an input is done.
* It was interrupted, because all requests in it are cancelled.
* The batch was refused: it is halved until the one request is found that llama.cpp does not take. That one fails.
* The computation failed: the requests in this batch fail. What is computed without a word may be no number (half
  precision overflows in some models): then the request fails that would have got it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from llamad.engine.backend import Backend, Outcome
from llamad.engine.counts import Counts
from llamad.engine.embedder import Embedder, Piece
from llamad.engine.inbox import Inbox
from llamad.engine.vocabulary import Embedded, EmbedRequest, Failed
from llamad.errors import LlamadError


class EmbedTurns:
    """Belongs to the engine's thread. `forget_idle` frees memory that nobody needs now; False where there is none.
    `counts` are the engine's.

    A backend that makes no vectors gets no requests for them.
    """

    def __init__(
        self,
        backend: Backend,
        inbox: Inbox,
        forget_idle: Callable[[], bool],
        counts: Counts,
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._inbox = inbox
        self._forget_idle = forget_idle
        self._counts = counts
        self._clock = clock
        self._embedder = Embedder(backend, backend.embedding) if backend.embedding else None
        self.blocked = False
        """Whether those that generate have the memory that an input needs: then no more of them must begin."""

    @property
    def at_rest(self) -> bool:
        """Nothing runs and nothing waits."""
        return self._embedder is None or self._embedder.at_rest

    @property
    def n_busy(self) -> int:
        """Requests that are being worked on."""
        return self._embedder.n_busy if self._embedder else 0

    def wait(self, request: EmbedRequest) -> None:
        """Queue a request."""
        assert self._embedder
        self._embedder.wait(request)

    def cancel(self, ids: Collection[int]) -> None:
        """Drop these requests, wherever they are."""
        if self._embedder:
            self._embedder.cancel(ids)
            self.blocked = self.blocked and not self.at_rest

    def drain(self) -> None:
        """Drop everything."""
        if self._embedder:
            self._embedder.drain()

    def give_way(self) -> bool:
        """Leave the memory to those that generate, until they have ended; False where nothing was in it."""
        gave = self._embedder is not None and self._embedder.give_way()
        self.blocked = self.blocked or gave
        return gave

    def turn(self, generating: bool, n_beside: int) -> list[Embedded | Failed]:
        """One decode call, and what has come of it. `n_beside`: tokens that it may have where others are `generating`."""
        if self._embedder is None or self._embedder.at_rest or (self.blocked and generating):
            return []
        embedder, how = self._embedder, self._backend.embedding
        assert how
        room = min(how.n_step, n_beside) if generating and not how.whole else how.n_step
        pieces = embedder.plan(room)
        while pieces:
            match self._decode(pieces):
                case Outcome.DONE:
                    return self._advance(embedder, pieces)
                case Outcome.ABORTED:
                    for piece in pieces:
                        embedder.begin_again(piece.input)
                    return []
                case Outcome.FULL if self._forget_idle():
                    pass
                case Outcome.FULL | Outcome.INVALID as outcome if len(pieces) > 1:
                    pieces = self._halve(embedder, pieces, outcome)
                case Outcome.FULL if smaller := self._smaller(embedder, pieces[0], whole=how.whole):
                    pieces = smaller
                case Outcome.FULL if generating:
                    self.blocked = True
                    return []
                case outcome:
                    return self._fail(embedder, pieces, outcome)
        return []

    def _decode(self, pieces: Sequence[Piece]) -> Outcome:
        if not self._inbox.enter([piece.input.id for piece in pieces]):
            return Outcome.ABORTED
        began = self._clock()
        try:
            self._backend.apply(pieces[0].input.adapters)
            return self._backend.embed([piece.entry for piece in pieces])
        finally:
            self._counts.prompt_ms += (self._clock() - began) * 1000
            self._inbox.leave()
            self._backend.rearm()

    def _advance(self, embedder: Embedder, pieces: Sequence[Piece]) -> list[Embedded | Failed]:
        counts, longest = self._counts, max(len(piece.input.tokens) for piece in pieces)
        counts.step(len(pieces), sum(piece.count for piece in pieces), 0, 0)
        counts.sequence_tokens_max = max(counts.sequence_tokens_max, longest)
        done, broken = embedder.advance(pieces)
        if any(piece.input.complete for piece in pieces):
            self.blocked = False
        counts.done += len(done)
        return [*done, *self._failed(broken, "the model's numbers are not finite")]

    @staticmethod
    def _halve(embedder: Embedder, pieces: list[Piece], outcome: Outcome) -> list[Piece]:
        half = len(pieces) // 2
        if outcome is Outcome.FULL:
            for piece in pieces[half:]:
                embedder.begin_again(piece.input)
        return pieces[:half]

    @staticmethod
    def _smaller(embedder: Embedder, piece: Piece, *, whole: bool) -> list[Piece]:
        """What to try instead of a piece that does not fit; nothing where there is no other way."""
        if embedder.give_way(but=piece.input):
            return [piece]
        return [Piece(piece.input, piece.count // 2)] if piece.count > 1 and not whole else []

    def _fail(self, embedder: Embedder, pieces: Sequence[Piece], outcome: Outcome) -> list[Embedded | Failed]:
        reasons = {
            Outcome.FULL: f"{len(pieces[0].input.tokens)} tokens do not fit the memory",
            Outcome.INVALID: "llama.cpp refuses this input",
        }
        reason = reasons.get(outcome, "the computation failed")
        ids = {piece.input.id for piece in pieces}
        embedder.cancel(ids)
        return self._failed(ids, reason)

    def _failed(self, ids: Collection[int], reason: str) -> list[Embedded | Failed]:
        self._counts.failed += len(ids)
        error = LlamadError(f"cannot embed: {reason}", kind="decode-failed")
        return [Failed(id, error) for id in sorted(ids)]
