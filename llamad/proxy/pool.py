"""Connections to instances and to the admin socket, kept between exchanges.

An instance that is gone must not be met again through a dead connection: the end of an idle connection removes it, and
where the end and a new request cross, the request is sent once more on a fresh connection. That is safe only when the
connection was a reused one and nothing of the answer had come; any other break is the caller's to judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from llamad.proxy.connection import Connection, UpstreamBroke
from llamad.proxy.silence import Silence

IDLE_PER_ADDRESS_MAX = 64
IDLE_MAX = 256
CONNECT_TIMEOUT_S = 10.0


class Pool:
    """Idle connections by address, `HOST:PORT` or `unix:/path`."""

    def __init__(self, silence: Silence | None = None) -> None:
        self._silence = silence or Silence()
        self._idle: dict[str, list[Connection]] = {}
        self._idle_count = 0

    async def exchange(
        self,
        address: str,
        head: bytes,
        body: bytes | bytearray,
        cut_client: Callable[[], None] | None = None,
    ) -> Connection:
        """A connection on which the request has been sent and the head of its answer has come.

        The caller ends the exchange with `give_back`, in any case. Raises UpstreamBroke. `cut_client`: the exchange is
        not to be silent for too long, and this is what to do when it is the client who takes nothing.
        """
        connection = self._take(address)
        if connection is not None:
            try:
                return await self._start(connection, head, body, cut_client)
            except UpstreamBroke as error:
                if error.began or error.silent:
                    raise
        return await self._start(await self._connect(address), head, body, cut_client)

    def give_back(self, address: str, connection: Connection) -> None:
        """Keep a connection whose exchange is over and clean, close any other. An open exchange is cancelled by it."""
        self._silence.forget(connection)
        idle = self._idle.setdefault(address, [])
        if not connection.reusable or len(idle) >= IDLE_PER_ADDRESS_MAX or self._idle_count >= IDLE_MAX:
            connection.abort()
            self._drop_empty(address)
            return
        connection.rest()
        idle.append(connection)
        self._idle_count += 1

    def close(self) -> None:
        """Close all that are idle."""
        for idle in list(self._idle.values()):
            for connection in list(idle):
                connection.abort()

    @property
    def idle_count(self) -> int:
        return self._idle_count

    async def _start(
        self,
        connection: Connection,
        head: bytes,
        body: bytes | bytearray,
        cut_client: Callable[[], None] | None,
    ) -> Connection:
        if not connection.usable:
            raise UpstreamBroke("it closed the connection", began=False)
        try:
            connection.begin(head, body)
            if cut_client is not None:
                self._silence.watch(connection, cut_client)
            await connection.wait_head()
        except BaseException:
            self._silence.forget(connection)
            connection.abort()
            raise
        return connection

    def _take(self, address: str) -> Connection | None:
        """The connection that was used last, so that the others may age out."""
        idle = self._idle.get(address, [])
        taken = None
        while idle and taken is None:
            connection = idle.pop()
            self._idle_count -= 1
            taken = connection if connection.usable else None
        self._drop_empty(address)
        return taken

    def _drop_empty(self, address: str) -> None:
        if not self._idle.get(address, True):
            del self._idle[address]

    def _forget(self, address: str, connection: Connection) -> None:
        idle = self._idle.get(address, [])
        if connection in idle:
            idle.remove(connection)
            self._idle_count -= 1
            self._drop_empty(address)

    async def _connect(self, address: str) -> Connection:
        """A fresh connection. uvloop takes it ill when a connect in flight is cancelled, so the wait is shielded."""
        connecting = asyncio.ensure_future(self._open(address))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await asyncio.shield(connecting)
        except TimeoutError:
            connecting.add_done_callback(_abort_late)
            raise UpstreamBroke(
                f"it took no connection within {CONNECT_TIMEOUT_S:.0f} s", began=False
            ) from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UpstreamBroke(f"it takes no connection: {reason}", began=False) from None
        except asyncio.CancelledError:
            connecting.add_done_callback(_abort_late)
            raise

    async def _open(self, address: str) -> Connection:
        loop = asyncio.get_running_loop()

        def build() -> Connection:
            return Connection(loop, lambda connection: self._forget(address, connection))

        kind, _, rest = address.partition(":")
        if kind == "unix":
            _, connection = await loop.create_unix_connection(build, rest)
        else:
            host, _, port = address.rpartition(":")
            _, connection = await loop.create_connection(build, host, int(port))
        return connection


def _abort_late(connecting: asyncio.Future[Connection]) -> None:
    """Nobody waits for this connection any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().abort()
