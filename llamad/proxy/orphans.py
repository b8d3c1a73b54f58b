"""Requests whose clients are gone: conversations that have no instance yet.

A conversation's client may leave while its model still loads. Its request is then held here until an instance has it,
and goes on there. Any other request ends with its client. What is held is bounded; what is over the bound ends, too.
"""

from __future__ import annotations

import asyncio
import logging

from llamad.errors import LlamadError
from llamad.proxy.call import Run

ORPHANS_MAX = 256
ORPHANS_BYTES_MAX = 256 << 20

log = logging.getLogger(__name__)

Opening = asyncio.Future[None]


class Orphans:
    """Those of one worker."""

    def __init__(self) -> None:
        self._held: dict[Opening, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def leave(self, opening: Opening, run: Run) -> None:
        """The client's call is over, whatever way. `opening` is the task that gives `run` what it has."""
        if not opening.done():
            if run.call.conversation and self._has_room_for(len(run.call.body)):
                self._held[opening] = len(run.call.body)
            else:
                opening.cancel()
        opening.add_done_callback(lambda _: self._settle(opening, run))

    async def settled(self) -> None:
        """Wait until an instance has each, or none will. For the end of a worker."""
        while self._held:
            await asyncio.wait(self._held)

    def _has_room_for(self, count: int) -> bool:
        return len(self._held) < ORPHANS_MAX and sum(self._held.values()) + count <= ORPHANS_BYTES_MAX

    def _settle(self, opening: Opening, run: Run) -> None:
        held = self._held.pop(opening, None) is not None
        error = None if opening.cancelled() else opening.exception()
        if held and isinstance(error, LlamadError):
            log.info("a conversation whose client has left did not begin: %s", error.message)
        run.end()
