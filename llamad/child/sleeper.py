"""Sleep and wake: the parent's orders, carried out one after the other in the order in which they came.

    AWAKE --sleep, idle--> (freeing) --> ASLEEP --wake--> (loading) --> AWAKE
    AWAKE --sleep, busy--> AWAKE, said by another `ready`

The parent orders sleep only when no request is out, but a caller who has left may still be on his way out of a slot.
Asleep, the process listens and tells about itself; what needs the model is refused (kind `sleeping`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from llamad.child.reporter import Reporter
from llamad.child.resident import Resident
from llamad.child.service import Service
from llamad.engine.llama import LlamaBackend
from llamad.wire.child import Sleep, Wake

log = logging.getLogger(__name__)

# A parent waits for an answer before it changes its mind, so one or two is what there ever is.
ORDERS_MAX = 16


class Sleeper:
    """Belongs to the event loop's thread. `load` makes the same model again; `ready` tells the parent that it is there."""

    def __init__(
        self,
        resident: Resident,
        service: Service,
        reporter: Reporter,
        load: Callable[[], LlamaBackend],
        ready: Callable[[], None],
    ) -> None:
        self._resident = resident
        self._service = service
        self._reporter = reporter
        self._load = load
        self._ready = ready
        self._orders: asyncio.Queue[Sleep | Wake] = asyncio.Queue(ORDERS_MAX)
        self.loading = False
        """A load is under way. It cannot be interrupted; who has to leave must leave it behind."""

    def take(self, order: Sleep | Wake) -> None:
        """Queue an order."""
        try:
            self._orders.put_nowait(order)
        except asyncio.QueueFull:
            log.error("cannot take another order: %d to sleep or wake are waiting", ORDERS_MAX)

    async def run(self) -> None:
        """Carry out orders for ever. Raises LlamadError when the model cannot be loaded again, or not be freed."""
        while True:
            if isinstance(await self._orders.get(), Sleep):
                await self._sleep()
            else:
                await self._wake()

    async def _sleep(self) -> None:
        if not self._resident.asleep:
            if not self._service.idle:
                log.warning("cannot sleep: there is work to do")
                self._ready()
                return
            await self._service.on_worker(self._resident.remove())
        self._reporter.sleeping(self._resident.held())

    async def _wake(self) -> None:
        if self._resident.asleep:
            self._reporter.progressed(0.0)
            self.loading = True
            try:
                backend = await self._service.on_worker(self._load)
            finally:
                self.loading = False
            self._resident.install(backend)
        self._ready()
