"""Operators: the configuration, and those who load, unload, pin and reload by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import Limits, ModelEntry
from tests.sim.memory import GIB

if TYPE_CHECKING:
    from tests.sim.world import World


class Operators:
    def __init__(self, world: World) -> None:
        self.w = world
        self.tickets: dict[int, str] = {}
        self.held_until: dict[str, float] = {}
        self.limited_at_s = 0.0
        """When limits were last set, in time awake."""
        self._generation = 0
        self._number = 0
        self.limits = self._limits()
        self.longest_abandon_s = self.limits.abandon_after_s
        """Of all limits so far: a load keeps the one it was dropped under."""
        self.entries = self._entries()

    def entry(self, model: str) -> ModelEntry | None:
        return self._by_name.get(model)

    def pinned(self, model: str) -> bool:
        entry = self.entry(model)
        return (entry is not None and entry.pinned) or self.held_until.get(model, 0.0) > self.w.now

    @property
    def entries(self) -> tuple[ModelEntry, ...]:
        return self._listed

    @entries.setter
    def entries(self, entries: tuple[ModelEntry, ...]) -> None:
        self._listed = entries
        self._by_name = {entry.name: entry for entry in entries}

    # ---- configuration

    def _limits(self) -> Limits:
        if self.w.calm:
            return self._calm_limits()
        rng = self.w.rng
        return Limits(
            models_max=rng.choice([0, 1, 1, 2, 3, 4]),
            autoload=rng.random() < 0.9,
            drain_after_s=rng.choice([0.0, 5.0, 30.0]),
            queue_timeout_s=rng.choice([20.0, 600.0]),
            max_queued=rng.choice([3, 512]),
            abandon_after_s=rng.choice([0.0, 10.0, 60.0]),
            load_timeout_s=rng.choice([0.0, 60.0]),
            margin_bytes=rng.choice([None, 0, GIB]),
        )

    def _calm_limits(self) -> Limits:
        """Nobody is ever told to wait no longer, so a forgotten one waits for ever."""
        rng = self.w.rng
        return Limits(
            models_max=rng.choice([0, 1, 1, 2]),
            drain_after_s=rng.choice([0.0, 5.0, 30.0]),
            queue_timeout_s=0.0,
            max_queued=60,
            margin_bytes=rng.choice([None, 0, GIB, GIB]),
        )

    def _entries(self) -> tuple[ModelEntry, ...]:
        rng, calm = self.w.rng, self.w.calm
        names = [name for name in self.w.names if calm or rng.random() < 0.95]
        return tuple(
            ModelEntry(
                name,
                (f"{name}:alias",),
                fingerprint=str(rng.choice([self._generation, 0])),
                pinned=not calm and rng.random() < 0.08,
                load_on_startup=rng.random() < 0.25,
                stop_timeout_s=10.0 if calm else rng.choice([1.0, 10.0]),
                priority=rng.choice([0, 0, 0, 1, -1]),
                sleep_idle_s=rng.choice([0.0, 0.0, 5.0]),
                unload_idle_s=rng.choice([0.0, 0.0, 20.0]),
                concurrency_limit=rng.choice([0, 0, 0, 1, 3]),
            )
            for name in names
        )

    def reload(self) -> None:
        """Another configuration, with other limits or not."""
        self._generation += 1
        self.entries = self._entries()
        names = {entry.name for entry in self.entries}
        # Who leaves the configuration leaves its hold, too.
        self.held_until = {name: until for name, until in self.held_until.items() if name in names}
        if self.w.rng.random() < 0.3:
            margin = self.limits.margin_bytes
            self.limits, self.limited_at_s = self._limits(), self.w.agenda.awake_s
            self.longest_abandon_s = max(self.longest_abandon_s, self.limits.abandon_after_s)
            if self.limits.margin_bytes is None:
                self.w.memory.forget()
            if margin != self.limits.margin_bytes:
                self.w.memory.disturb_books(self.w.memory.totals)
        self.w.step(e.ModelsConfigured(self.entries, self.limits))

    # ---- orders

    def _ticket(self, model: str) -> int:
        self._number += 1
        self.tickets[self._number] = model
        return self._number

    def _somewhere(self) -> str:
        """A model; sometimes one that nobody knows."""
        return f"m{self.w.rng.randrange(len(self.w.names) + 1)}"

    def order_load(self, model: str) -> None:
        self.w.step(e.LoadAsked(self._ticket(model), model))

    def order(self) -> None:
        rng, model = self.w.rng, self._somewhere()
        ticket = self._ticket(model)
        if rng.random() < 0.5:
            self.w.step(e.LoadAsked(ticket, model))
        else:
            self.w.step(e.UnloadAsked(ticket, model, force=rng.random() < 0.3))
        if rng.random() < 0.2:
            self.w.later(rng.choice([0.0, rng.uniform(0, 10)]), lambda: self._drop(ticket))

    def doubt(self) -> None:
        """What was measured of a model may no longer hold."""
        self.w.step(e.NeedDoubted(self._somewhere()))

    def _drop(self, ticket: int) -> None:
        """Whoever ordered it does not listen any more."""
        if self.tickets.pop(ticket, None) is not None:
            self.w.step(e.TicketDropped(ticket))

    def pin(self) -> None:
        rng, model = self.w.rng, self._somewhere()
        ticket, pinned = self._ticket(model), rng.random() < 0.5
        for_s = rng.uniform(1, 100) if pinned and rng.random() < 0.5 else None
        self.held_until.pop(model, None)
        if for_s is not None and model in self._by_name:
            self.held_until[model] = self.w.now + for_s
        else:
            self.entries = tuple(replace(x, pinned=pinned) if x.name == model else x for x in self.entries)
        self.w.step(e.PinAsked(ticket, model, pinned, for_s))

    def answered(self, action: a.AnswerTicket) -> None:
        del self.tickets[action.ticket]
