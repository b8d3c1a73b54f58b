"""TLS handshakes of a worker's clients: bounded in number and in time.

uvloop's own servers tell of a connection only when its handshake is over, and wait a minute for that; until then it would
count nowhere. And a protocol cannot start TLS itself: uvloop may have read the client's first bytes by then. So each
connection's socket is taken from the transport that it came with, and given to one that begins with the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING

from llamad.proxy.client_connection import FrontProtocol

if TYPE_CHECKING:
    from llamad.proxy.worker import FrontWorker

HANDSHAKE_S = 10.0
# So many over the limit on connections get their handshake, and within it the answer that says why they get no more.
TOLD_MAX = 64


class Handshake(asyncio.Protocol):
    """What gunicorn takes for the protocol of its connections."""

    def __init__(self, worker: FrontWorker) -> None:
        self._worker = worker

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        worker = self._worker
        if worker.nr_conns + len(worker.handshakes) < worker.connections_max + TOLD_MAX:
            client = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
            client.setblocking(False)
            task = worker.loop.create_task(_shake(worker, client))
            worker.handshakes.add(task)
            task.add_done_callback(worker.handshakes.discard)
        transport.abort()


async def _shake(worker: FrontWorker, client: socket.socket) -> None:
    """A FrontProtocol has the connection afterwards. One whose handshake fails is closed, and there is nobody to tell."""
    with contextlib.suppress(OSError):
        await worker.loop.connect_accepted_socket(
            lambda: FrontProtocol(worker),
            client,
            ssl=worker.tls,
            ssl_handshake_timeout=min(HANDSHAKE_S, worker.cfg.keepalive),
        )
