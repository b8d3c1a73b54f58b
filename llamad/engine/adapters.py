"""Sets of LoRA adapters, as requests and decode calls have them. Pure.

The set in force belongs to the context: one decode call has one set, and what the context's memory holds was computed
with the set of its time and is of no use under another. So requests with different sets share no batch and no prefix.
A step makes one decode call for each set that takes part in it, so no set waits for another's streams to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from llamad.engine.vocabulary import AdapterFacts, Adapters

T = TypeVar("T")


def in_force(scales: Iterable[tuple[int, float]]) -> Adapters:
    """These (id, scale) as a set: the same for everything that has the same effect."""
    return tuple(sorted((id, scale) for id, scale in scales if scale))


def by_default(adapters: Sequence[AdapterFacts]) -> Adapters:
    """The set that a model's options put in force."""
    return in_force(enumerate(adapter.scale for adapter in adapters))


def apart(items: Iterable[T], adapters_of: Callable[[T], Adapters], last: Adapters) -> list[list[T]]:
    """The items of each set by themselves, order kept. Changing the set costs, so the `last` one comes first."""
    groups: dict[Adapters, list[T]] = {last: []}
    for item in items:
        groups.setdefault(adapters_of(item), []).append(item)
    return [group for group in groups.values() if group]
