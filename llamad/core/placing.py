"""Placing: on which devices a model is loaded, when there is a choice.

One device is best, as nothing then has to be passed between devices: of those that have room the one with the least left
over, which keeps the larger gaps for larger models. Split over several is next. When no way has room now, the same is
asked of the room that is coming, then of the room that idle models would leave; and when that is not enough either, the
way that lacks least is gone for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llamad.core.events import Amounts, Placement
from llamad.core.ledger import short_of


def best(
    placements: Sequence[Placement], rooms: Sequence[Amounts], hopeless: Callable[[Placement], bool]
) -> Placement:
    """The way to go for. `rooms`: what is free now, and what will be, the soonest first. `hopeless`: will never fit."""
    hopeful = [placement for placement in placements if not hopeless(placement)]
    return min(hopeful or placements, key=lambda placement: _rank(placement, rooms))


def _rank(placement: Placement, rooms: Sequence[Amounts]) -> tuple[int, bool, int]:
    split = len(placement.devices) > 1
    for wait, room in enumerate(rooms):
        if not short_of(placement.minimum, room):
            return (wait, split, sum(room.get(device, 0) for device in placement.devices))
    return (len(rooms), split, sum(short_of(placement.minimum, rooms[-1]).values()))
