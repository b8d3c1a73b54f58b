"""A toy model behind the Backend protocol: exact, instant, and strict about what llama.cpp is strict about.

The token that follows a sequence is a letter computed from all of it, so a token lost, doubled or taken from a
neighbour changes every answer after it. `answer` gives what a request alone must produce. Adapters change every letter.
"""

from __future__ import annotations

import pickle
import random
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from llamad.engine.backend import Entry, Outcome
from llamad.engine.drafting import Drafter
from llamad.engine.embedding import Matrix
from llamad.engine.host_memory import Bytes
from llamad.engine.narrow import Ids, Row
from llamad.engine.shape import Embedding
from llamad.engine.stages import Stage
from llamad.engine.vocabulary import AdapterFacts, Adapters, ModelFacts
from llamad.errors import RequestError

N_BYTES = 256
EOG = 256
N_VOCAB = 257
WIDTH = 3


def next_token(tokens: Sequence[int]) -> int:
    """A small letter that depends on every token and its position."""
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return ord("a") + state % 26


def adapted(token: int, adapters: Adapters) -> int:
    """What adapters make of a letter; other tokens they leave alone."""
    shift = sum((id + 1) * round(10 * scale) for id, scale in adapters)
    return ord("a") + (token - ord("a") + shift) % 26 if ord("a") <= token <= ord("z") else token


def answer(
    tokens: Sequence[int],
    count: int,
    successor: Callable[[Sequence[int]], int] = next_token,
    adapters: Adapters = (),
) -> str:
    """The greedy answer of `count` tokens."""
    sequence = list(tokens)
    for _ in range(count):
        sequence.append(adapted(successor(sequence), adapters))
    return bytes(sequence[len(tokens) :]).decode()


def hidden(tokens: Sequence[int]) -> list[float]:
    """The vector of the last of these tokens: it depends on all of them."""
    state = next_token(tokens)
    return [float(state), float(tokens[-1]), float(len(tokens))]


class FakeChain:
    """Draws among all candidates with a generator seeded by the chain's last stage."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        seed = stages[-1].args[-1]
        # DRY's last argument is another.
        self._random = random.Random(seed if isinstance(seed, int) else 0)
        self._left: tuple[Ids, Row] = (np.empty(0, np.int64), np.empty(0, np.float32))

    def draw(self, row: Row, ids: Ids | None) -> int:
        choices = [id for id in (np.arange(row.size) if ids is None else ids) if row[id] > -np.inf]
        letters = [id for id in choices if ord("a") <= id <= ord("z")] or choices
        self._left = (np.array(letters), np.full(len(letters), 1 / len(letters), np.float32))
        return int(self._random.choice(letters))

    def adjust(self, row: Row, ids: Ids) -> None:
        row[ids] -= 1.0

    def accept(self, token: int) -> None:
        pass

    def chances(self) -> tuple[Ids, Row]:
        return self._left


class FakeBackend:
    """See above. `forced`: outcomes of the next decode calls; `on_decode` is called while a decode runs."""

    def __init__(
        self,
        n_slots: int = 4,
        n_ctx: int = 256,
        n_step: int = 64,
        *,
        shared: bool = True,
        shifts: bool = False,
        embedding: Embedding | None = None,
    ) -> None:
        n_ctx_slot = n_ctx if shared else n_ctx // n_slots
        self.facts = ModelFacts(
            architecture="fake",
            description="fake",
            n_params=1,
            size_bytes=1,
            n_ctx=n_ctx,
            n_ctx_slot=n_ctx_slot,
            n_ctx_train=n_ctx,
            n_vocab=N_VOCAB,
            n_embd=1,
            n_slots=n_slots,
            adapters=tuple(AdapterFacts(f"{name}.gguf") for name in "abc"),
            chat_template=None,
            bos_token="",
            eos_token="",
            add_bos=False,
            shifts=shifts,
            n_embd_out=WIDTH,
            pooling=embedding.pooling if embedding else None,
        )
        self.embedding = embedding
        self.n_step = n_step
        self.n_swa = 0
        self.drafters: Sequence[Drafter] = ()
        self.n_drafted = 0
        self.successor: Callable[[Sequence[int]], int] = next_token
        self.forced: deque[Outcome] = deque()
        self.refuse_token: int | None = None
        self.on_decode: Callable[[], None] = lambda: None
        self.batches: list[list[Entry]] = []
        beside = embedding.sequences if embedding else ()
        sequences = (*range(n_slots), *beside)
        self.memory: dict[int, list[int]] = {sequence: [] for sequence in sequences}
        self.adapters: Adapters = ()
        self.changes_of_adapters = 0
        self._evaluated_with: dict[int, Adapters] = {}
        self.copies_parts = shared
        self._cells: dict[int, list[int]] = {sequence: [] for sequence in sequences}
        self._last_cell = 0
        self._hidden: list[list[float]] = []
        self.recurrent = False
        self.can_shift = True
        self._oldest: dict[int, int] = dict.fromkeys(sequences, 0)
        self._corrupt: set[int] = set()
        self._flag = False
        self._rows: list[Row] = []

    @property
    def n_cells(self) -> int:
        """Cells in use; one that several sequences share counts once."""
        return len({cell for cells in self._cells.values() for cell in cells})

    def apply(self, adapters: Adapters) -> None:
        self.changes_of_adapters += adapters != self.adapters
        self.adapters = adapters

    def decode(self, entries: Sequence[Entry]) -> Outcome:
        total = sum(len(entry.tokens) for entry in entries)
        assert 0 < total <= self.n_step
        assert all(entry.tokens for entry in entries)
        for entry in entries:
            assert entry.start == len(self.memory[entry.sequence]), "positions must be consecutive"
        self.on_decode()
        if self._flag:
            return Outcome.ABORTED
        if self.forced and (outcome := self.forced.popleft()) is not Outcome.DONE:
            return outcome
        if any(self.refuse_token in entry.tokens for entry in entries):
            return Outcome.INVALID
        if self.n_cells + total > self.facts.n_ctx:
            return Outcome.FULL
        self.batches.append(list(entries))
        self._rows = [row for entry in entries for row in self._evaluate(entry)]
        return Outcome.DONE

    def _evaluate(self, entry: Entry) -> list[Row]:
        held = self.memory[entry.sequence]
        if not held:
            self._evaluated_with[entry.sequence] = self.adapters
        assert self._evaluated_with[entry.sequence] == self.adapters, "memory of other adapters"
        held.extend(entry.tokens)
        first, self._last_cell = self._last_cell + 1, self._last_cell + len(entry.tokens)
        self._cells[entry.sequence].extend(range(first, self._last_cell + 1))
        if self.n_swa:
            self._oldest[entry.sequence] = max(self._oldest[entry.sequence], len(held) - self.n_swa)
        wrong = [0] if entry.sequence in self._corrupt else []
        return [self._row([*held[: len(held) - back], *wrong]) for back in reversed(range(entry.logits))]

    def _row(self, tokens: Sequence[int]) -> Row:
        row = np.zeros(N_VOCAB, np.float32)
        row[adapted(self.successor(tokens), self.adapters)] = 10.0
        return row

    def embed(self, entries: Sequence[Entry]) -> Outcome:
        assert self.embedding
        assert all(entry.sequence in self.embedding.sequences for entry in entries)
        before = {entry.sequence: len(self.memory[entry.sequence]) for entry in entries}
        outcome = self.decode(entries)
        if outcome is Outcome.DONE:
            held = [(self.memory[entry.sequence], before[entry.sequence]) for entry in entries]
            self._hidden = [
                hidden(tokens[: end + 1]) for tokens, start in held for end in range(start, len(tokens))
            ]
        return outcome

    def hidden(self) -> Matrix:
        return np.array(self._hidden, np.float32)

    def scores(self, sequence: int) -> Matrix:
        return np.array([hidden(self.memory[sequence])[:1]], np.float32)

    def logits(self, index: int) -> Row:
        return self._rows[index]

    def abort(self) -> None:
        self._flag = True

    def rearm(self) -> None:
        self._flag = False

    def pos_min(self, sequence: int) -> int:
        n_held = len(self.memory[sequence])
        if not n_held:
            return -1
        return n_held - 1 if self.recurrent else self._oldest[sequence]

    def trim(self, sequence: int, n_past: int) -> bool:
        """What is behind its window has no window: llama.cpp does not say so, and answers are wrong from there on."""
        if self.recurrent and n_past < len(self.memory[sequence]):
            return False
        if self._oldest[sequence] > max(0, n_past - self.n_swa):
            self._corrupt.add(sequence)
        for held in (self.memory, self._cells):
            del held[sequence][n_past:]
        return True

    def can_copy(self, source: int, count: int) -> bool:
        return self.copies_parts or count == len(self.memory[source])

    def copy(self, source: int, target: int, count: int) -> None:
        assert self.can_copy(source, count)
        assert not self.memory[target], "the target must have been cleared"
        self._evaluated_with[target] = self._evaluated_with[source]
        self._oldest[target] = self._oldest[source]
        for held in (self.memory, self._cells):
            held[target] = held[source][:count]

    def shift(self, sequence: int, begin: int, count: int) -> None:
        assert 0 <= begin < begin + count <= len(self.memory[sequence])
        others = {cell for other, cells in self._cells.items() if other != sequence for cell in cells}
        assert not others & set(self._cells[sequence][begin:]), (
            "a cell that others have would move for them, too"
        )
        for held in (self.memory, self._cells):
            del held[sequence][begin : begin + count]

    def gather(self, sequence: int, n_past: int, chunks: Sequence[tuple[int, int]]) -> None:
        assert self.can_shift
        others = {cell for other, cells in self._cells.items() if other != sequence for cell in cells}
        assert not others & set(self._cells[sequence][n_past:]), (
            "cells that others have would move for them, too"
        )
        for held in (self.memory, self._cells):
            was = held[sequence]
            held[sequence] = was[:n_past] + [
                each for begin, count in chunks for each in was[begin : begin + count]
            ]

    def state_bytes(self, sequence: int, partial: bool) -> int:
        return len(self._state(sequence))

    def state(self, sequence: int, partial: bool) -> Bytes:
        return np.frombuffer(self._state(sequence), np.uint8).copy()

    def restore(self, sequence: int, state: Bytes, partial: bool) -> bool:
        tokens, oldest, adapters = pickle.loads(state.tobytes())
        if partial:
            assert self.memory[sequence][: len(tokens)] == tokens, (
                "the rest of the state is of something else"
            )
            if self.recurrent:
                for held in (self.memory, self._cells):
                    del held[sequence][len(tokens) :]
        else:
            assert not self.memory[sequence], "the sequence must have been cleared"
            if self.n_cells + len(tokens) > self.facts.n_ctx:
                return False
            first, self._last_cell = self._last_cell + 1, self._last_cell + len(tokens)
            self.memory[sequence], self._cells[sequence] = tokens, list(range(first, self._last_cell + 1))
        self._oldest[sequence], self._evaluated_with[sequence] = oldest, adapters
        return True

    def _state(self, sequence: int) -> bytes:
        return pickle.dumps(
            (self.memory[sequence], self._oldest[sequence], self._evaluated_with.get(sequence))
        )

    def clear(self, sequence: int) -> None:
        self._oldest[sequence] = 0
        self._corrupt.discard(sequence)
        for held in (self.memory, self._cells):
            held[sequence].clear()

    def chain(self, stages: Sequence[Stage]) -> FakeChain:
        return FakeChain(stages)

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < N_BYTES else b""

    def pieces(self) -> list[bytes]:
        return [self.piece(token) for token in range(N_VOCAB)]

    def is_eog(self, token: int) -> bool:
        return token == EOG

    def eog_tokens(self) -> tuple[int, ...]:
        return (EOG,)

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        return list(text.encode())

    def detokenize(self, tokens: Sequence[int]) -> str:
        if any(not 0 <= token < N_VOCAB for token in tokens):
            raise RequestError("cannot detokenize")
        return b"".join(self.piece(token) for token in tokens).decode(errors="replace")
