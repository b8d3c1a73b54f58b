"""What the engine needs of an inference library. `llama` has the real one; tests bring a toy model.

All calls but `tokenize`, `detokenize`, `piece`, `is_eog` and `abort` come from one thread, the engine's. `chain`,
`pieces` and `eog_tokens` come from the workshop's, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from llamad.engine.drafting import Drafter
from llamad.engine.embedding import Matrix
from llamad.engine.host_memory import Bytes
from llamad.engine.narrow import Row
from llamad.engine.sampling import Chain
from llamad.engine.shape import Embedding
from llamad.engine.stages import Stage
from llamad.engine.vocabulary import Adapters, ModelFacts


class Entry(NamedTuple):
    """Consecutive tokens of one sequence, from position `start`. `logits`: of so many at the end (True is one)."""

    sequence: int
    start: int
    tokens: Sequence[int]
    logits: int


class Outcome(Enum):
    """How a decode call ended."""

    DONE = "done"
    FULL = "full"
    """No room in the memory for this batch; nothing has changed."""
    ABORTED = "aborted"
    """Ended by `abort`; a part may have been evaluated."""
    INVALID = "invalid"
    """The batch was refused; nothing has changed."""
    BROKEN = "broken"
    """The computation failed; a part may have been evaluated."""


class Backend(Protocol):
    """One loaded model with one context."""

    facts: ModelFacts
    n_step: int
    """Most tokens one decode call should carry."""
    embedding: Embedding | None
    """How vectors are made, None where they are not."""
    n_swa: int
    """Sliding window in tokens, 0 where the memory keeps everything."""
    drafters: Sequence[Drafter]
    """Who drafts how sequences go on, in this order; none without speculation."""
    n_drafted: int
    """Most drafted tokens that one decode call may carry."""
    can_shift: bool
    """Whether what is held can be moved to other positions."""
    recurrent: bool
    """Whether the memory, or a part of it, is a state that has no positions: it cannot be cut back at all."""

    def apply(self, adapters: Adapters) -> None:
        """Have the next decode calls evaluate with these adapters. At first there are none."""
        ...

    def decode(self, entries: Sequence[Entry]) -> Outcome:
        """Evaluate one batch: at most `n_step` tokens."""
        ...

    def embed(self, entries: Sequence[Entry]) -> Outcome:
        """Evaluate one batch for vectors: at most `embedding.n_step` tokens, or one input that is longer."""
        ...

    def hidden(self) -> Matrix:
        """A row for each token of the last `embed`, in batch order: a view that the next call overwrites."""
        ...

    def scores(self, sequence: int) -> Matrix:
        """The one row that the classifier head made of a sequence in the last `embed`."""
        ...

    def logits(self, index: int) -> Row:
        """Logits of the `index`-th token that the last decode had to give some of: a view that the next one overwrites."""
        ...

    def abort(self) -> None:
        """End the decode call that is running or comes next, as soon as possible. From any thread."""
        ...

    def rearm(self) -> None:
        """Forget an `abort`: the next decode call runs."""
        ...

    def pos_min(self, sequence: int) -> int:
        """The oldest position held of a sequence, -1 for none."""
        ...

    def trim(self, sequence: int, n_past: int) -> bool:
        """Keep only the first `n_past` positions. False where that cannot be done (then nothing has changed)."""
        ...

    def can_copy(self, source: int, count: int) -> bool:
        """Can the first `count` positions of `source` be copied? All that it holds always can."""
        ...

    def copy(self, source: int, target: int, count: int) -> None:
        """Let `target`, of which nothing is held, begin with the first `count` positions of `source`."""
        ...

    def shift(self, sequence: int, begin: int, count: int) -> None:
        """Remove `count` positions from `begin` on, and move what is behind them down to there."""
        ...

    def gather(self, sequence: int, n_past: int, chunks: Sequence[tuple[int, int]]) -> None:
        """Keep the first `n_past` positions and these (begin, count) behind them, moved together; nothing else."""
        ...

    def state_bytes(self, sequence: int, partial: bool) -> int:
        """How large `state` would be."""
        ...

    def state(self, sequence: int, partial: bool) -> Bytes | None:
        """What the memory has of a sequence, or with `partial` the part of that which cannot be cut back. None: failed."""
        ...

    def restore(self, sequence: int, state: Bytes, partial: bool) -> bool:
        """Have a `state` back; all of one in a sequence of which nothing is held. False: nothing is held then."""
        ...

    def clear(self, sequence: int) -> None:
        """Forget a sequence."""
        ...

    def chain(self, stages: Sequence[Stage]) -> Chain:
        """A new sampler chain with its own random numbers."""
        ...

    def pieces(self) -> Sequence[bytes]:
        """`piece` of every token, in the order of ids."""
        ...

    def piece(self, token: int) -> bytes:
        """Bytes of a token in an answer: nothing for control tokens."""
        ...

    def is_eog(self, token: int) -> bool:
        """Does this token end an answer?"""
        ...

    def eog_tokens(self) -> Sequence[int]:
        """All tokens that end an answer."""
        ...

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]: ...

    def detokenize(self, tokens: Sequence[int]) -> str: ...
