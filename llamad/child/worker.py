"""The thread beside the event loop that does one thing at a time, and the line before it.

How long a thing takes is up to whoever sends it. So those that weigh nothing go first, in order of arrival, and the others
by their weight: a short one waits for the one that runs, at most, however many long ones are in line.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "worker")
        self._line: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0
        self._n_jobs = 0
        self._busy = False

    @property
    def idle(self) -> bool:
        """Nothing runs or is in line."""
        return not self._n_jobs

    async def do(self, call: Callable[[], T], *, weight: int = 0) -> T:
        """The result of `call`, made on the thread. Who is cancelled in line leaves it; what has begun goes on to its end."""
        self._n_jobs += 1
        try:
            await self._turn(weight)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, call)
            finally:
                self._pass_on()
        finally:
            self._n_jobs -= 1

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, weight: int) -> None:
        if not self._busy:
            self._busy = True
            return
        self._arrivals += 1
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._line, (weight, self._arrivals, mine))
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():
                self._pass_on()  # it had just come
            raise

    def _pass_on(self) -> None:
        while self._line:
            first = heapq.heappop(self._line)[2]
            if not first.done():
                first.set_result(None)
                return
        self._busy = False
