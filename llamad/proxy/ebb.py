"""Memory that a crowd of clients has left behind goes back to the system.

A connection and its calls refer to each other, so what has ended lies about until a full collection of the garbage, which
may be hours away once all is quiet; and what is free then stays with the allocator. So when most of a crowd has gone,
both are done at once, which costs some ms.
"""

from __future__ import annotations

import ctypes
import gc

CROWD_MIN = 64
EBB_FACTOR = 4


class Ebb:
    """Watches the count of connections."""

    def __init__(self) -> None:
        self._most = 0
        self._ebbing = False
        """The rest of a crowd is still to go: it is small, but what it leaves behind may not be."""

    def rose(self, count: int) -> None:
        if count >= CROWD_MIN or not self._ebbing:
            self._most = max(self._most, count)

    def came(self, count: int) -> bool:
        """Whether most of a crowd, or of its rest, has gone since this was last so. Ask now and then.

        When all have gone it is so once more: calls end a moment later than their connections.
        """
        if (self._most < CROWD_MIN and not self._ebbing) or count * EBB_FACTOR > self._most:
            return False
        self._ebbing = self._most > 0
        self._most = count
        return True


def give_memory_back() -> None:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc's alone
        trim(0)
