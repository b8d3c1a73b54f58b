"""A client's request as the handlers see it: its id, its cleanup, and its body read with a bound.

Everything a handler takes on the way (a lease, an upstream connection) is put on `cleanup`, which the app unwinds when
the request's call ends, whatever way it ends: answered, failed, or cancelled because the client has left.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any, cast

import falcon.asgi

from llamad.errors import RequestError

CLEANUP_KEY = "llamad.cleanup"
REQUEST_ID_KEY = "llamad.request_id"


class Request(falcon.asgi.Request):
    """Falcon's request with the raw events kept: its stream gives a truncated body without an error."""

    def __init__(
        self, scope: dict[str, Any], receive: Any, first_event: Any = None, options: Any = None
    ) -> None:
        super().__init__(scope, receive, first_event=first_event, options=options)
        self._events = receive
        self._first = first_event

    @property
    def cleanup(self) -> ExitStack:
        return cast(ExitStack, self.scope[CLEANUP_KEY])

    @property
    def id(self) -> str:
        return cast(str, self.scope[REQUEST_ID_KEY])

    async def read_body(self, max_bytes: int) -> bytes | bytearray:
        """The whole body. Raises RequestError: 413 over `max_bytes`, 408 when it ends early or stalls.

        Read before anything else is waited for, as a client is only seen leaving while its socket is read.
        """
        declared_bytes = declared_length(self.scope)
        if declared_bytes is None:
            return await self._read_chunked(max_bytes)
        check_length(declared_bytes, max_bytes)
        return await self._read_declared(declared_bytes) if declared_bytes else b""

    async def _read_declared(self, length_bytes: int) -> bytearray:
        """Into one buffer of the right size: half the memory of pieces and their join."""
        body = bytearray(length_bytes)
        filled = 0
        more = True
        while more:
            piece, more = await self._next_piece(filled)
            body[filled : filled + len(piece)] = piece
            filled += len(piece)
        if filled != length_bytes:
            raise _cut_short(filled)
        return body

    async def _read_chunked(self, max_bytes: int) -> bytearray:
        body = bytearray()
        more = True
        while more:
            piece, more = await self._next_piece(len(body))
            body += piece
            check_length(len(body), max_bytes)
        return body

    async def _next_piece(self, so_far_bytes: int) -> tuple[bytes, bool]:
        event, self._first = self._first or await self._events(), None
        if event["type"] == "http.disconnect":
            raise _cut_short(so_far_bytes)
        return event.get("body", b""), event.get("more_body", False)


def declared_length(scope: dict[str, Any]) -> int | None:
    """The Content-Length, which gunicorn has checked; 0 for no body; None for a chunked one."""
    length = 0
    for name, value in scope["headers"]:
        if name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            return None
    return length


def check_length(length_bytes: int, max_bytes: int) -> None:
    if length_bytes > max_bytes:
        raise RequestError(
            f"cannot take a body of {length_bytes} bytes: at most {max_bytes}",
            kind="body-too-large",
            status=413,
            details={"max_body_bytes": max_bytes},
        )


def retry_after(seconds: float) -> str:
    """The header's whole seconds, never too early."""
    return str(max(1, math.ceil(seconds)))


def _cut_short(so_far_bytes: int) -> RequestError:
    """A client that left never reads this; one that merely stalled does."""
    return RequestError(
        f"cannot read the body: nothing more came after {so_far_bytes} bytes",
        kind="body-cut-short",
        status=408,
    )
