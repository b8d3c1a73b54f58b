"""The instance's HTTP server: a listener of its own, uvicorn on it, until it is told to stop.

Signals are left alone: the supervisor speaks through the pipe, and SIGTERM means at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from llamad.child.door import Application

BACKLOG = 1024
# The proxy's pool drops idle connections long before; so no request meets a connection that is just being closed.
KEEP_ALIVE_S = 3600


def listen(unix_path: str = "") -> tuple[socket.socket, str]:
    """A listener and its address as `ready` reports it: loopback on a free port, or a socket for this user alone."""
    if not unix_path:
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        return listener, f"127.0.0.1:{listener.getsockname()[1]}"
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(unix_path)
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    return listener, f"unix:{unix_path}"


class Front(uvicorn.Server):
    """Serves `app`; `on_listening` is called once connections are accepted."""

    def __init__(self, app: Application, on_listening: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        super().__init__(config)
        self._on_listening = on_listening
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Accept nothing more, let running requests finish, then return from `serve`. Loop's thread only."""
        self._stop.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """Without uvicorn's ten wake-ups a second, which only serve dates and signals."""
        self._on_listening()
        await self._stop.wait()
