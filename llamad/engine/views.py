"""What `/slots` shows: each slot with its request, or with what the one before had asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llamad.engine.slot import Slot, State
from llamad.engine.task import Task
from llamad.engine.vocabulary import GenerateRequest, ModelFacts, SlotView


class Views:
    """Remembers of a request that has ended only what is shown: its rules and its sampler go with it."""

    def __init__(self, facts: ModelFacts) -> None:
        self._n_ctx = facts.n_ctx_slot
        self._speculative = bool(facts.speculation)
        self._last: dict[int, GenerateRequest] = {}

    def remember(self, slot: Slot[Task]) -> None:
        """The request in this slot is about to end."""
        if slot.holder is not None:
            self._last[slot.id] = replace(slot.holder.request, tokens=(), rules=None)

    def of(self, slots: Sequence[Slot[Task]]) -> list[SlotView]:
        """As of now, from any thread."""
        return [self._view(slot) for slot in slots]

    def _view(self, slot: Slot[Task]) -> SlotView:
        task = slot.holder
        if task is not None:
            n_prompt = len(task.request.tokens)
            counts = (n_prompt, task.n_cached, task.n_predicted)
            return SlotView(
                slot.id,
                slot.state.value,
                self._n_ctx,
                task.id,
                *counts,
                task.request,
                task.has_new_line,
                self._speculative,
            )
        return SlotView(
            slot.id,
            State.IDLE.value,
            self._n_ctx,
            None,
            0,
            len(slot.cached),
            0,
            self._last.get(slot.id),
            speculative=self._speculative,
        )
