"""Choices among candidates. Pure functions over values; they say who, never do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from llamad.core.events import Amounts
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
    return model.idle and not model.pinned and not model.wanted


def may_drain(model: Model) -> bool:
    """Nothing but its requests keeps it: those that it serves, or those for which a sleeper cannot wake."""
    kept = model.state is State.LOADED or (model.state is State.SLEEPING and model.wanted)
    return kept and not model.pinned


def drain_order(model: Model) -> tuple[int, float]:
    """The fewest running requests first, as it will be idle soonest; of equals the one loaded longest ago."""
    return (len(model.leases), model.loaded_at or 0.0)


def enough(
    candidates: Iterable[Model], short: Amounts, held: Callable[[Model], Amounts]
) -> list[Model] | None:
    """The first candidates that together hold what is short, leaving out those that hold nothing of it.

    None if all of them together do not.
    """
    chosen, missing = [], dict(short)
    for model in candidates:
        if not missing:
            break
        holds = held(model)
        if any(holds.get(name, 0) > 0 for name in missing):
            chosen.append(model)
            missing = {name: n - holds.get(name, 0) for name, n in missing.items() if n > holds.get(name, 0)}
    return None if missing else chosen
