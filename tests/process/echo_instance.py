"""An instance that speaks WebSocket, on a thread of the test: what it does is named by the path.

/echo              every message comes back as it came
/push/N/SIZE       N binary messages of SIZE bytes, then a normal close
/close/CODE        a close with that code and the reason "as told"
/die               no word, just the end of the connection, after the first message
/slow              reads nothing
/quiet             says nothing
/refuse            no upgrade: a 403 with a JSON body
/plain             no upgrade: a 200
"""

from __future__ import annotations

import asyncio
import json
import threading
from http import HTTPStatus
from types import TracebackType
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

CHOICE = (Subprotocol("realtime"), Subprotocol("chat"))
REFUSAL = {"error": {"code": 403, "message": "cannot let you in", "type": "permission_error"}}


class EchoInstance:
    """`paths`, `headers` and `ends` (close code and reason) are of each socket, in order."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.ends: list[tuple[int | None, str | None]] = []
        self.address = ""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> EchoInstance:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Gone, and all its sockets with it, without a word."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._sockets: set[ServerConnection] = set()
        server: Server
        async with serve(
            self._talk,
            "127.0.0.1",
            0,
            process_request=self._look,
            select_subprotocol=lambda _, offered: next((name for name in CHOICE if name in offered), None),
            max_size=None,
            compression=None,
        ) as server:
            host, port = server.sockets[0].getsockname()
            self.address = f"{host}:{port}"
            self._ready.set()
            await self._stop.wait()
            for socket in list(self._sockets):
                socket.transport.abort()

    def _look(self, connection: ServerConnection, request: Request) -> Response | None:
        self.paths.append(request.path)
        self.headers.append({name.lower(): value for name, value in request.headers.raw_items()})
        if request.path.startswith("/refuse"):
            body = json.dumps(REFUSAL).encode()
            headers = Headers([("Content-Type", "application/json"), ("X-Instance", "fake")])
            return Response(HTTPStatus.FORBIDDEN, "Forbidden", headers, body)
        if request.path.startswith("/plain"):
            return Response(HTTPStatus.OK, "OK", Headers(), b"hello")
        return None

    async def _talk(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        word, *details = socket.request.path.partition("?")[0].strip("/").split("/")
        self._sockets.add(socket)
        try:
            await getattr(self, "_" + word)(socket, *details)
            await socket.wait_closed()
        except ConnectionClosed:
            pass
        finally:
            self._sockets.discard(socket)
            self.ends.append((socket.close_code, socket.close_reason))

    async def _echo(self, socket: ServerConnection, *_: Any) -> None:
        async for message in socket:
            await socket.send(message)

    async def _push(self, socket: ServerConnection, count: str, size: str) -> None:
        for number in range(int(count)):
            await socket.send(bytes([number % 256]) * int(size))
        await socket.close()

    async def _close(self, socket: ServerConnection, code: str) -> None:
        await socket.close(int(code), "as told")

    async def _die(self, socket: ServerConnection) -> None:
        await socket.recv()
        socket.transport.abort()

    async def _slow(self, socket: ServerConnection) -> None:
        await self._stop.wait()

    async def _quiet(self, socket: ServerConnection) -> None:
        await socket.wait_closed()
