"""Carries out orders for slots: each as soon as its slot is idle, before the next request can get it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from llamad.engine.backend import Backend
from llamad.engine.orders import SlotDone, SlotOrder, SlotState
from llamad.engine.recall import Recall
from llamad.engine.slot import Slot
from llamad.engine.task import Task
from llamad.engine.vocabulary import Failed
from llamad.errors import ConflictError, LlamadError, RequestError


class SlotOrders:
    """Belongs to the engine's thread. Bounded by what the inbox lets in."""

    def __init__(self, backend: Backend, slots: Sequence[Slot[Task]], recall: Recall) -> None:
        self._backend = backend
        self._slots = slots
        self._recall = recall
        self._waiting: list[SlotOrder] = []

    @property
    def at_rest(self) -> bool:
        """Nothing waits."""
        return not self._waiting

    def wait(self, order: SlotOrder) -> None:
        """Queue an order."""
        self._waiting.append(order)

    def cancel(self, ids: Collection[int]) -> None:
        """Drop these orders."""
        self._waiting = [order for order in self._waiting if order.id not in ids]

    def turn(self) -> list[SlotDone | Failed]:
        """Carry out what can be; the last words."""
        ready = [order for order in self._waiting if self._slots[order.slot].idle]
        self.cancel([order.id for order in ready])
        return [self._carry_out(order) for order in ready]

    def _carry_out(self, order: SlotOrder) -> SlotDone | Failed:
        slot = self._slots[order.slot]
        try:
            match order.action:
                case "save":
                    state = self._state(slot)
                    return SlotDone(order.id, len(state.tokens), state)
                case "restore" if order.state is not None:
                    self._restore(slot, order.state)
                    return SlotDone(order.id, len(order.state.tokens))
                case _:
                    n_tokens = len(slot.cached)
                    self._recall.forget(slot)
                    return SlotDone(order.id, n_tokens)
        except LlamadError as error:
            return Failed(order.id, error)

    def _state(self, slot: Slot[Task]) -> SlotState:
        if not slot.cached:
            raise ConflictError(f"cannot save slot {slot.id}: it remembers nothing", kind="slot-empty")
        data = self._backend.state(slot.id, partial=False)
        if data is None:
            raise LlamadError(
                f"cannot save slot {slot.id}: llama.cpp does not give its state", kind="slot-state"
            )
        return SlotState(tuple(slot.cached), slot.n_exact, slot.adapters, data)

    def _restore(self, slot: Slot[Task], state: SlotState) -> None:
        if not self._recall.put(slot, state.tokens, state.adapters, state.data):
            raise RequestError(
                f"cannot restore slot {slot.id}: there is no room for {len(state.tokens)} tokens, or the state is not one of this"
                " context",
                kind="slot-state",
            )
        slot.n_exact = min(state.n_exact, len(state.tokens))
        # Of all that could be forgotten now it was wanted last.
        slot.used_at_step = max(each.used_at_step for each in self._slots)
