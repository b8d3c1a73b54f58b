"""Turns at something of which there is little: so many at once, and who waits is served round the clients.

One client's thousand requests so hold up another's single one by one turn, not by a thousand. It belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """`most` at once."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for one's turn, and have it until the end of the block."""
        await self._begin(client)
        try:
            yield
        finally:
            self._pass_on()

    async def _begin(self, client: str) -> None:
        if self._free:
            self._free -= 1
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():
                self._pass_on()  # it had just come
            raise

    def _pass_on(self) -> None:
        """To the client that has waited for longest since its last turn; those who have left are passed over."""
        while self._waiting:
            client = next(iter(self._waiting))
            line = self._waiting.pop(client)
            first = line.popleft()
            if line:
                self._waiting[client] = line
            if not first.done():
                first.set_result(None)
                return
        self._free += 1
