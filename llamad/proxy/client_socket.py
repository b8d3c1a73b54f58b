"""gunicorn's end of a client's WebSocket, with what a relay needs otherwise.

Each override names the behaviour of gunicorn 27.0 that it replaces; tests/process/test_proxy_websocket.py guards them:

* masks come off in C, not byte by byte in Python (2 s for 10 MB, in which every stream of the worker stands still);
* no frame is read before the client is accepted: what a hasty one sends would be answered before the handshake is;
* an upgrade can be refused with an answer of the application's own (ASGI's `websocket.http.response`);
* what waits to be relayed is bounded by bytes and not by messages, of which each may be large;
* the reason of a client's close frame is told.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from gunicorn.asgi import websocket
from websockets.frames import apply_mask  # type: ignore[attr-defined] # the C version where there is one

QUEUED_BYTES_MAX = 256 * 1024

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class ClientSocket(websocket.WebSocketProtocol):  # type: ignore[misc]
    """One client's WebSocket."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scope.setdefault("extensions", {})["websocket.http.response"] = {}
        self._queued_bytes = 0
        self._may_read = asyncio.Event()

    async def _read_frames(self) -> None:
        await self._may_read.wait()
        await super()._read_frames()

    def _unmask(self, payload: bytes, masking_key: bytes) -> bytes:
        return apply_mask(payload, masking_key) if payload else payload

    async def _put_message(self, message: dict[str, Any]) -> None:
        while self._queued_bytes >= QUEUED_BYTES_MAX and not self._close_sent:
            self._queue_space.clear()
            await self._queue_space.wait()
        await super()._put_message(message)
        self._queued_bytes += _size(message)

    async def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = await super()._receive()
        self._queued_bytes -= _size(message)
        if self._queued_bytes < QUEUED_BYTES_MAX:
            self._queue_space.set()
        if message["type"] == "websocket.disconnect":
            message["reason"] = self.close_reason
        return message

    async def _send(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "websocket.http.response.start":
            self._refuse(message)
        elif kind == "websocket.http.response.body":
            self.transport.write(message.get("body", b""))
            if not message.get("more_body", False):
                self.transport.close()
        else:
            await super()._send(message)
            if self.accepted:
                self._may_read.set()

    def _refuse(self, message: dict[str, Any]) -> None:
        if self.accepted:
            raise RuntimeError("cannot refuse a WebSocket that was accepted")
        self._denied = self.closed = True
        self._close_event.set()
        status = message["status"]
        head = [b"HTTP/1.1 %d %s\r\n" % (status, _PHRASES.get(status, "").encode())]
        head.extend(b"%s: %s\r\n" % header for header in message.get("headers", ()))
        self.transport.write(b"".join([*head, b"\r\n"]))


def _size(message: dict[str, Any]) -> int:
    return len(message.get("text") or message.get("bytes") or b"")
