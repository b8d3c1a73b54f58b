"""Time as a parameter: decisions take `now`; only the edges hold a Clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What an edge needs to know about time."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back. For deadlines and ages."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch. For what people and log files read; never for deadlines."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
