"""The instance's HTTP server: a listener of its own, uvicorn on it, until it is told to stop.

Signals are left alone: the supervisor speaks through the pipe, and SIGTERM means at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from llamad.child.connection import Connection
from llamad.child.door import Application
from llamad.errors import LlamadError

BACKLOG = 1024
# The proxy's pool drops idle connections long before; so no request meets a connection that is just being closed.
KEEP_ALIVE_S = 3600


def listen(unix_path: str = "") -> tuple[socket.socket, str]:
    """A listener and its address as `ready` reports it: loopback on a free port, or a socket for this user alone.

    A socket that a dead process left under that name is replaced. Raises LlamadError.
    """
    try:
        listener = (
            _listen_unix(unix_path) if unix_path else socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        )
    except OSError as error:
        where = unix_path or "127.0.0.1"
        raise LlamadError(
            f"cannot listen on {where}: {error.strerror or error}", kind="cannot-listen"
        ) from error
    return listener, f"unix:{unix_path}" if unix_path else f"127.0.0.1:{listener.getsockname()[1]}"


def _listen_unix(path: str) -> socket.socket:
    if os.path.exists(path) and stat.S_ISSOCK(os.lstat(path).st_mode):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    return listener


class Front(uvicorn.Server):
    """Serves `app`; `on_listening` is called once connections are accepted."""

    def __init__(self, app: Application, on_listening: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http=Connection,
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
