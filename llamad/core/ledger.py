"""The books: what is held, and what may still be handed out.

The first book counts processes against `models-max`. The books of device and host memory (bytes reserved before a
spawn, replaced by what an instance really took, given back when its process is gone) belong in this file beside it,
behind the same three verbs: `fits`, `reserve`, `give_back`.
"""

from __future__ import annotations


class Ledger:
    """Who holds room. Keyed by child, because two processes of one model are two holders."""

    def __init__(self, models_max: int) -> None:
        self.models_max = models_max
        self._held: dict[int, str] = {}

    @property
    def residents(self) -> int:
        """Processes that hold room: loading, loaded or on their way out."""
        return len(self._held)

    @property
    def excess(self) -> int:
        """How many residents there are over the limit (after an operator lowered it)."""
        return max(0, len(self._held) - self.models_max) if self.models_max else 0

    def fits(self) -> bool:
        """One more process may be spawned now."""
        return not self.models_max or len(self._held) < self.models_max

    def reserve(self, child: int, model: str) -> None:
        """Take room for a process that is about to be spawned."""
        self._held[child] = model

    def give_back(self, child: int) -> None:
        """The process is gone."""
        del self._held[child]

    def holders(self) -> list[str]:
        """Models that hold room, in the order in which they took it."""
        return list(self._held.values())
