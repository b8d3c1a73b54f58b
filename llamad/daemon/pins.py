"""Pins: what operators have ordered to stay, kept across crashes, reloads and restarts.

`pins.json`: `{"pinned": {MODEL: true | false}, "held_until": {MODEL: seconds since the epoch}}`. An order stands over the
configuration: `true` pins a model that is not pinned there; `false` unpins one that is, and is forgotten when the
configuration does not pin it any more. A hold is a pin with an end; by the wall clock, because it outlives restarts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from llamad.core.events import ModelEntry
from llamad.daemon.statefile import StateFile
from llamad.errors import LlamadError

ORDERS_MAX = 10_000

Value = TypeVar("Value")


class Pins:
    """The orders. `wall` gives seconds since the epoch."""

    def __init__(self, file: StateFile, wall: Callable[[], float]) -> None:
        self._file = file
        self._wall = wall
        document = file.load()
        pinned, held = document.get("pinned"), document.get("held_until")
        self._pinned: dict[str, bool] = {
            name: flag
            for name, flag in (pinned if isinstance(pinned, dict) else {}).items()
            if isinstance(flag, bool)
        }
        self._held: dict[str, float] = {
            name: float(until)
            for name, until in (held if isinstance(held, dict) else {}).items()
            if isinstance(until, int | float) and not isinstance(until, bool)
        }

    def pin(self, model: str) -> None:
        """Raises LlamadError where it cannot be kept; then nothing has changed. The others, too."""
        self._change({**self._pinned, model: True}, _without(self._held, model))

    def unpin(self, model: str, configured: bool) -> None:
        """Also ends a hold. `configured`: the configuration pins it."""
        pinned = _without(self._pinned, model)
        self._change({**pinned, model: False} if configured else pinned, _without(self._held, model))

    def hold(self, model: str, for_s: float) -> None:
        self._change(self._pinned, {**self._held, model: self._wall() + for_s})

    def amended(self, entries: tuple[ModelEntry, ...]) -> tuple[ModelEntry, ...]:
        """Entries of a new configuration, with the orders over them. Orders that it has overtaken are forgotten."""
        for entry in entries:
            if not entry.pinned and self._pinned.get(entry.name) is False:
                del self._pinned[entry.name]
        return tuple(replace(entry, pinned=self._pinned.get(entry.name, entry.pinned)) for entry in entries)

    def holds(self) -> dict[str, float]:
        """Model to the seconds that are left of its hold."""
        now = self._wall()
        return {model: until - now for model, until in self._held.items() if until > now}

    def _change(self, pinned: dict[str, bool], held: dict[str, float]) -> None:
        now = self._wall()
        held = {model: until for model, until in held.items() if until > now}
        if len(pinned) + len(held) > ORDERS_MAX:
            raise LlamadError(f"cannot keep more than {ORDERS_MAX} pins", kind="too-many-pins", status=409)
        try:
            self._file.save({"pinned": pinned, "held_until": held})
        except OSError as error:
            raise LlamadError(f"cannot keep the pin: {error}", kind="state-dir", status=500) from error
        self._pinned, self._held = pinned, held


def _without(orders: dict[str, Value], model: str) -> dict[str, Value]:
    return {name: value for name, value in orders.items() if name != model}
