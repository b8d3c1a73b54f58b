"""Drafts of a small model with the same vocabulary, in a context of its own.

Its sequences are the slots'. Before it can draft how one goes on, it must have evaluated what there is of it, and it
does that beside the large model, a bounded part in each step: a long prompt costs no stream its turn. Then it generates
greedily, all slots in one batch. What it has evaluated of wrong drafts is taken back when the true tokens are known.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from llamad.engine.backend import Backend, Entry, Outcome
from llamad.engine.drafting import DraftModelSettings, Wish
from llamad.engine.narrow import Row
from llamad.engine.plan import fair
from llamad.engine.prefix import LOAN_MIN, common, reusable
from llamad.engine.vocabulary import ModelFacts

log = logging.getLogger(__name__)

CATCH_UP_MAX = 256
"""Tokens that it evaluates in one step to know what there is, over all slots."""
CATCH_UP_MIN = 32
"""Unless it is to draft, it waits until so many have come together: one by one they cost much more."""
# The likelihood of a token is taken among so many, as llama.cpp's draft sampler does.
_AMONG = 10


@dataclass(slots=True)
class _Line:
    """What the draft model's memory holds of a slot. The first `agreed` of it are the sequence's tokens."""

    sequence: tuple[int, int] = (-1, 0)
    held: list[int] = field(default_factory=list)
    agreed: int = 0

    def compare(self, wish: Wish) -> None:
        """See how much of it is true. What was so before need not be looked at again."""
        known = self.agreed if self.sequence == wish.sequence else 0
        rest = self.held[known:]
        self.sequence = wish.sequence
        self.agreed = known + common(rest, list(wish.tokens[known : known + len(rest)]))


class DraftModel:
    """`draft-simple`. `backend`: the small model's own, with as many sequences as there are slots."""

    def __init__(self, backend: Backend, settings: DraftModelSettings, model: ModelFacts) -> None:
        """`model`: the large one."""
        self._backend = backend
        self._settings = settings
        # Of two vocabularies that match one may have some more tokens.
        self._n_vocab = model.n_vocab
        # Generating is reading weights.
        self.cost = backend.facts.size_bytes / max(1, model.size_bytes)
        self._lines = [_Line() for _ in range(backend.facts.n_slots)]

    def draft(self, wishes: Sequence[Wish]) -> list[list[int]]:
        known = [wish for wish in wishes if self._knows(wish)]
        for wish in known:
            self._take_back(wish)
        drafts = self._generate([wish for wish in self._catch_up(known) if wish.n_max])
        return [drafts.get(wish.slot, []) for wish in wishes]

    def judge(self, task: int, n_drafted: int, n_accepted: int) -> None:
        """It does not learn."""

    def _knows(self, wish: Wish) -> bool:
        """Has the small model all of these tokens, and room for them?"""
        facts = self._backend.facts
        fits = len(wish.tokens) + wish.n_max <= facts.n_ctx_slot
        return fits and (facts.n_vocab >= self._n_vocab or max(wish.tokens) < facts.n_vocab)

    def _take_back(self, wish: Wish) -> None:
        """Forget of a slot what is not, or no longer, so."""
        backend, line = self._backend, self._lines[wish.slot]
        line.compare(wish)
        if len(wish.tokens) - line.agreed > LOAN_MIN and self._borrow(wish, line):
            return
        # The last token is evaluated when drafting begins.
        n_past = reusable(line.agreed, len(wish.tokens), backend.pos_min(wish.slot), backend.n_swa)
        if n_past < len(line.held) and not (n_past and backend.trim(wish.slot, n_past)):
            backend.clear(wish.slot)
            n_past = 0
        del line.held[n_past:]
        line.agreed = n_past

    def _borrow(self, wish: Wish, line: _Line) -> bool:
        """Begin with what another slot has, if it has more of it by far: answers to one prompt, one system prompt."""
        tokens = list(wish.tokens)
        most, source = line.agreed + LOAN_MIN - 1, -1
        for slot, other in enumerate(self._lines):
            n_common = common(other.held, tokens) if other is not line and len(other.held) > most else 0
            n_common = min(n_common, len(tokens) - 1)
            if n_common > most and self._backend.can_copy(slot, n_common):
                most, source = n_common, slot
        if source < 0:
            return False
        self._backend.clear(wish.slot)
        self._backend.copy(source, wish.slot, most)
        line.held = self._lines[source].held[:most]
        line.agreed = most
        return True

    def _catch_up(self, wishes: Sequence[Wish]) -> list[Wish]:
        """Evaluate what is missing before the last tokens, up to a bound; the wishes of which nothing is missing now."""
        missing = [len(wish.tokens) - 1 - len(self._lines[wish.slot].held) for wish in wishes]
        wanted = [
            left if wish.n_max or left >= CATCH_UP_MIN else 0
            for wish, left in zip(wishes, missing, strict=True)
        ]
        counts = fair(wanted, min(CATCH_UP_MAX, self._backend.n_step))
        entries = [
            self._entry(wish, self._next(wish, count))
            for wish, count in zip(wishes, counts, strict=True)
            if count
        ]
        if entries and not self._decode(entries):
            counts = [0] * len(wishes)
        return [wish for wish, left, count in zip(wishes, missing, counts, strict=True) if left == count]

    def _generate(self, going: list[Wish]) -> dict[int, list[int]]:
        drafts: dict[int, list[int]] = {wish.slot: [] for wish in going}
        least = {wish.slot: self._settings.n_min if wish.n_min is None else wish.n_min for wish in going}
        while going:
            entries = [
                self._entry(wish, drafts[wish.slot][-1:] or wish.tokens[-1:], logits=1) for wish in going
            ]
            if not self._decode(entries):
                break
            going = [wish for row, wish in enumerate(going) if self._goes_on(wish, row, drafts[wish.slot])]
        return {slot: draft for slot, draft in drafts.items() if len(draft) >= least[slot]}

    def _goes_on(self, wish: Wish, row: int, draft: list[int]) -> bool:
        """Add one token to a draft, if it is likely enough; whether another one may follow."""
        logits = self._backend.logits(row)
        token = int(logits.argmax())
        p_min = self._settings.p_min if wish.p_min is None else wish.p_min
        if token >= self._n_vocab or (p_min > 0 and _likelihood(logits, token) < p_min):
            return False
        draft.append(token)
        return len(draft) < min(wish.n_max, self._settings.n_max)

    def _next(self, wish: Wish, count: int) -> Sequence[int]:
        start = len(self._lines[wish.slot].held)
        return wish.tokens[start : start + count]

    def _entry(self, wish: Wish, tokens: Sequence[int], logits: int = 0) -> Entry:
        return Entry(wish.slot, len(self._lines[wish.slot].held), tokens, logits)

    def _decode(self, entries: list[Entry]) -> bool:
        """Evaluate, and keep in mind what is in the memory then. False where that cannot be done."""
        outcome = self._backend.decode(entries)
        if outcome is Outcome.FULL and self._forget_others({entry.sequence for entry in entries}):
            outcome = self._backend.decode(entries)
        if outcome is not Outcome.DONE:
            if outcome is not Outcome.FULL:
                log.warning("cannot draft with the small model: a decode call was %s", outcome.value)
                for entry in entries:
                    self._forget(entry.sequence)
            return False
        for entry in entries:
            self._lines[entry.sequence].held += entry.tokens
        return True

    def _forget_others(self, slots: set[int]) -> bool:
        """Make room; False if there is none to make."""
        others = [slot for slot, line in enumerate(self._lines) if line.held and slot not in slots]
        for slot in others:
            self._forget(slot)
        return bool(others)

    def _forget(self, slot: int) -> None:
        self._backend.clear(slot)
        self._lines[slot] = _Line()


def _likelihood(logits: Row, token: int) -> float:
    """Of the likeliest token, among the likeliest ten."""
    best = np.partition(logits, -_AMONG)[-_AMONG:] if logits.size > _AMONG else logits
    return float(1.0 / np.exp(best - logits[token]).sum())
