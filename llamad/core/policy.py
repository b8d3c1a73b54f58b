"""Choices among candidates. Pure functions over values; they say who, never do it."""

from __future__ import annotations

from collections.abc import Iterable

from llamad.core.model import Model, State

PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 60.0
STABLE_AFTER_S = 60.0
"""A process that served this long has proven its configuration: its crash starts a new count."""


def pause_s(failures: int, *, served: bool) -> float:
    """How long a model that failed `failures` times in a row is left alone.

    The first crash of a process that had come up costs nothing: it worked, and the next request may well work again.
    """
    if served and failures <= 1:
        return 0.0
    return min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** (failures - 1))


def may_evict(model: Model) -> bool:
    """Never a model that is busy, loading, stopping, pinned, or wanted."""
    return model.idle and not model.entry.pinned and not model.wanted


def victim(idle_lru_first: Iterable[Model]) -> Model | None:
    """The idle model that was used longest ago and may go."""
    return next((model for model in idle_lru_first if may_evict(model)), None)


def drain_victim(residents: Iterable[Model]) -> Model | None:
    """Which busy model to close for new leases, so that a model that has waited too long gets its room.

    The one with the fewest running requests, as it will be idle soonest; of equals the one loaded longest ago.
    """
    candidates = [
        model
        for model in residents
        if model.state is State.LOADED and model.drain is None and not model.entry.pinned
    ]
    return min(candidates, key=lambda model: (len(model.leases), model.loaded_at or 0.0), default=None)
