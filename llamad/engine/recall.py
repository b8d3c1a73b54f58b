"""What of a prompt is in the memory already, and need not be evaluated again.

Looked for in this order, the longest wins: the slot that the request has got (`prefix.choose` gave it the one that
remembers most of it), and any other slot, busy or not, whose beginning can be shared. Where the memory keeps all
positions in one place, sharing costs nothing: a system prompt that a hundred conversations begin with is there once.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamad.engine import prefix
from llamad.engine.backend import Backend
from llamad.engine.slot import Slot
from llamad.engine.task import Task


class Recall:
    """Keeps the context's memory and the slots' `cached` in step. Belongs to the engine's thread."""

    def __init__(self, backend: Backend, slots: Sequence[Slot[Task]]) -> None:
        self._backend = backend
        self._slots = slots

    def settle(self, slot: Slot[Task]) -> int:
        """Have the longest beginning of the slot's request in its memory that can be had, and nothing else; its length."""
        n_past = self._reusable(slot, slot)
        if self._borrow(slot, n_past + prefix.LOAN_MIN):
            return len(slot.cached)
        if not n_past or not self._backend.trim(slot.id, n_past):
            self.forget(slot)
            return 0
        return n_past

    def copy(self, source: Slot[Task], target: Slot[Task]) -> None:
        """Let a slot have all that another has."""
        self._backend.clear(target.id)
        self._share(source, target, len(source.cached))

    def forget(self, slot: Slot[Task]) -> None:
        """Remove everything a slot has in the memory."""
        self._backend.clear(slot.id)
        slot.keep(0)

    def _borrow(self, slot: Slot[Task], at_least: int) -> bool:
        """Share another slot's beginning, if at least so much of it is wanted."""
        others = [(self._reusable(slot, other), other) for other in self._slots if other is not slot]
        n_past, lender = max(others, key=lambda pair: pair[0], default=(0, slot))
        if n_past < at_least or not self._backend.can_copy(lender.id, n_past):
            return False
        self.forget(slot)
        self._share(lender, slot, n_past)
        slot.have(lender.cached[:n_past], n_past)
        return True

    def _share(self, source: Slot[Task], target: Slot[Task], count: int) -> None:
        self._backend.copy(source.id, target.id, count)
        source.shares = target.shares = True

    def _reusable(self, slot: Slot[Task], holder: Slot[Task]) -> int:
        """How much of what `holder` has would do for the request in `slot`."""
        task, n_held = slot.task, len(holder.cached)
        n_common = min(prefix.common(usable(holder, task), task.tokens), holder.n_exact)
        if task.repeatable and not prefix.is_steady(n_common, len(task.tokens), n_held):
            return 0
        backend = self._backend
        return prefix.reusable(n_common, len(task.tokens), backend.pos_min(holder.id), backend.n_swa)


def usable(slot: Slot[Task], task: Task) -> list[int]:
    """What a slot remembers, as far as this request may make use of it."""
    return slot.cached if task.request.cache_prompt and slot.adapters == task.adapters else []
