"""Which leases workers may keep for a moment, so that the next small request need not ask for one.

Only while nobody waits for anything, as a lease that is kept stands in somebody's way; as soon as somebody waits, all are
called back. A request that counts for something beside itself (a client with limits, a conversation, a read that is no
use of the model) always asks. `llamad.wire.lease` has the protocol.
"""

from __future__ import annotations

from llamad.core.events import LeaseKey
from llamad.wire import lease as wire


class KeptLeases:
    """Over all workers."""

    def __init__(self) -> None:
        self._waiting: set[LeaseKey] = set()
        self._keepers: set[int] = set()

    def asked(self, key: LeaseKey) -> None:
        self._waiting.add(key)

    def answered(self, key: LeaseKey) -> None:
        """Granted, refused or withdrawn."""
        self._waiting.discard(key)

    def worker_lost(self, worker: int) -> None:
        self._keepers.discard(worker)
        self._waiting = {key for key in self._waiting if key.worker != worker}

    def may_keep(self, key: LeaseKey, ask: wire.Ask | None, *, limited: bool) -> bool:
        """Whether the worker may keep what it is granted now. `limited`: the requests of its client are counted."""
        if self._waiting or ask is None or limited or not ask.load or ask.conversation:
            return False
        self._keepers.add(key.worker)
        return True

    def called_back(self) -> set[int]:
        """The workers that have to be told, once."""
        keepers, self._keepers = self._keepers, set()
        return keepers
