"""What may be asked of a slot, beside generating in it: to give its state away, to take one, to forget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class SlotState:
    """What a slot has of a sequence. `n_exact` of the tokens were evaluated where they stand; with these adapters."""

    tokens: tuple[int, ...]
    n_exact: int
    adapters: tuple[tuple[int, float], ...]
    data: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class SlotOrder:
    """`action`: `save`, `restore` (then with the `state`) or `erase`. It waits until the slot is idle."""

    id: int
    slot: int
    action: str
    state: SlotState | None = None


@dataclass(frozen=True, slots=True)
class SlotDone:
    """The last word on a SlotOrder that was carried out: how many tokens it was about, and with `save` the state."""

    id: int
    n_tokens: int
    state: SlotState | None = None
