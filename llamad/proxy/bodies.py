"""What the bodies of a worker's requests take of its memory, and whose they are. Pure.

A body stays until its answer has ended, as it may have to be sent again; so a queue of large ones could take all of the
machine's memory. A client may have as many bytes here as there are still free, itself left out: one alone half of all, two
a third each. So there is always room for one more client. Small bodies are not counted: connections bound them.
"""

from __future__ import annotations

from collections import Counter

from llamad.errors import UnavailableError
from llamad.units import GIB, KIB, MIB

SMALL_BYTES = 64 * KIB
TOTAL_BYTES_MIN = GIB


class Bodies:
    """Of one worker. `body_bytes_max`: the largest that there may be; one client alone can always send one."""

    def __init__(self, body_bytes_max: int) -> None:
        self._most = max(TOTAL_BYTES_MIN, 2 * body_bytes_max)
        self._total = 0
        self._held: Counter[str] = Counter()

    @property
    def total_bytes(self) -> int:
        """What is held of large bodies."""
        return self._total

    def check(self, client: str, more_bytes: int) -> None:
        """Raises UnavailableError (503) where there is no room for so much more."""
        held, free = self._held[client], self._most - self._total
        if held + 2 * more_bytes > free:
            raise UnavailableError(
                f"cannot take the body: {held // MIB} MiB of this client's requests are held already,"
                f" and {free // MIB} MiB are free for all",
                kind="bodies-full",
                retry_after_s=5.0,
            )

    def take(self, client: str, count: int) -> None:
        """Raises UnavailableError, and nothing is taken."""
        self.check(client, count)
        self._total += count
        self._held[client] += count

    def give_back(self, client: str, count: int) -> None:
        self._total -= count
        self._held[client] -= count
        if not self._held[client]:
            del self._held[client]


class Holding:
    """Of one request, as its body grows."""

    def __init__(self, bodies: Bodies, client: str) -> None:
        self._bodies = bodies
        self._client = client
        self._count = 0

    def announce(self, count: int) -> None:
        """It says that it will be so large. Raises UnavailableError where there is no room for that now."""
        if count > SMALL_BYTES:
            self._bodies.check(self._client, count)

    def grow_to(self, count: int) -> None:
        """Raises UnavailableError."""
        if count > SMALL_BYTES:
            self._bodies.take(self._client, count - self._count)
            self._count = count

    def end(self) -> None:
        """Idempotent."""
        if self._count:
            self._bodies.give_back(self._client, self._count)
            self._count = 0
