"""Exchanges in which nothing moves any more: by `--timeout` they end, whoever it is that is silent.

An instance that says nothing is given up, and its client told. A client that takes nothing is cut off: it could not be told;
and it has a minute at most, as it holds a place at its model, for which others may wait: a few that read nothing would keep it
from all of them.
Which of the two it is shows in whether anybody waits for the instance's bytes. One timer looks at all of them, as
a timer each would cost more than all the rest of a relayed token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from llamad.proxy.connection import Connection

LOOKS_PER_LIMIT = 8
LOOK_S_MAX = 30.0
CLIENT_S_MAX = 60.0


@dataclass(slots=True)
class _Watch:
    reads: int
    since: float
    cut_client: Callable[[], None]


class Silence:
    """`limit_s` 0: they may be silent for ever."""

    def __init__(self, limit_s: float = 0.0) -> None:
        self._limit_s = limit_s
        self._watched: dict[Connection, _Watch] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: Connection, cut_client: Callable[[], None]) -> None:
        """From now on, until `forget`."""
        if self._limit_s:
            loop = asyncio.get_running_loop()
            self._watched[connection] = _Watch(connection.reads, loop.time(), cut_client)
            if self._timer is None:
                self._arm(loop)

    def forget(self, connection: Connection) -> None:
        self._watched.pop(connection, None)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(min(LOOK_S_MAX, self._limit_s / LOOKS_PER_LIMIT), self._look)

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection, watch in list(self._watched.items()):
            if connection.reads != watch.reads:
                watch.reads, watch.since = connection.reads, now
            elif now - watch.since >= self._limit_of(connection):
                self.forget(connection)
                self._end(connection, watch)
        if self._watched:
            self._arm(loop)

    def _limit_of(self, connection: Connection) -> float:
        return self._limit_s if connection.awaited else min(self._limit_s, CLIENT_S_MAX)

    def _end(self, connection: Connection, watch: _Watch) -> None:
        if connection.awaited:
            connection.give_up(f"it was silent for {self._limit_s:g} s")
        else:
            watch.cut_client()
