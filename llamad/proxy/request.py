"""A client's request as the handlers see it: its id, its cleanup, and its body read with a bound.

Everything a handler takes on the way (a lease, an upstream connection) is put on `cleanup`, which the app unwinds when
the request's call ends, whatever way it ends: answered, failed, or cancelled because the client has left.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any, cast

import falcon.asgi

from llamad.errors import LlamadError, RequestError
from llamad.proxy.bodies import Holding
from llamad.proxy.gate import CLIENT, KEY
from llamad.proxy.sink import SINK, Sink
from llamad.wire import lease as wire
from llamad.wire.stream import ID_HEADER

BODIES_KEY = "llamad.bodies"
CLEANUP_KEY = "llamad.cleanup"
REQUEST_ID_KEY = "llamad.request_id"
POSITION_KEY = "llamad.queue_position"
CONVERSATION_ID_BYTES_MAX = 256


class Request(falcon.asgi.Request):
    """Falcon's request with the raw events kept: its stream gives a truncated body without an error."""

    def __init__(
        self, scope: dict[str, Any], receive: Any, first_event: Any = None, options: Any = None
    ) -> None:
        super().__init__(scope, receive, first_event=first_event, options=options)
        self._events = receive

    @property
    def cleanup(self) -> ExitStack:
        return cast(ExitStack, self.scope[CLEANUP_KEY])

    @property
    def id(self) -> str:
        return cast(str, self.scope[REQUEST_ID_KEY])

    @property
    def sink(self) -> Sink | None:
        """The short way to its client, where there is one."""
        return cast("Sink | None", self.scope.get(SINK))

    @property
    def client(self) -> str:
        """Whose request this is: a key's public name, or an address."""
        return cast(str, self.scope.get(CLIENT, ""))

    @property
    def metered(self) -> bool:
        """Whether the tokens of its answer count."""
        key = self.scope.get(KEY)
        return key is not None and key.metered

    @property
    def owner(self) -> str:
        """Who may find its conversation again: a key's public name. Without keys, whoever knows its id."""
        return self.client if KEY in self.scope else ""

    @property
    def conversation(self) -> str:
        """The id of the conversation that it begins, "" for none. Raises RequestError."""
        given = self.get_header(ID_HEADER) if self.method == "POST" else None
        return conversation_id(given.encode("latin-1")) if given else ""

    def note_position(self, notice: wire.Queued | wire.Progress) -> None:
        """Where it stood in the queue when it came."""
        if isinstance(notice, wire.Queued):
            self.scope.setdefault(POSITION_KEY, notice.position)

    async def read_body(self, max_bytes: int) -> bytes | bytearray:
        """The whole body. Raises RequestError: 413 over `max_bytes`, 408 when it ends early or stalls; UnavailableError.

        Read before anything else is waited for, as a client is only seen leaving while its socket is read. The buffer
        grows with what has come, never with what was declared: a liar must not cost memory.
        """
        declared_bytes = declared_length(self.scope)
        check_length(declared_bytes or 0, max_bytes)
        holding = Holding(self.scope[BODIES_KEY], self.client)
        self.cleanup.callback(holding.end)
        holding.announce(declared_bytes or 0)
        body = bytearray()
        more = declared_bytes != 0
        while more:
            event = await self._events()
            if event["type"] == "http.disconnect":
                raise cut_short(len(body))
            body += event.get("body", b"")
            more = event.get("more_body", False)
            check_length(len(body), max_bytes)
            holding.grow_to(len(body))
        if declared_bytes is not None and len(body) != declared_bytes:
            raise cut_short(len(body))
        return body


def conversation_id(given: bytes) -> str:
    """A client's id as text, the same from a header and from a query. Raises RequestError."""
    try:
        id = given.decode()
    except UnicodeDecodeError:
        id = given.decode("latin-1")
    if not id or len(id.encode()) > CONVERSATION_ID_BYTES_MAX or not id.isprintable():
        raise RequestError(
            f"cannot take a conversation id of {len(given)} bytes: expected 1 to {CONVERSATION_ID_BYTES_MAX},"
            " all printable",
            kind="bad-conversation-id",
        )
    return id


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


def error_headers(error: LlamadError) -> list[tuple[str, str]]:
    """What an error says in headers: when to come again (whole seconds, never too early), how to say a key."""
    headers = []
    if error.retry_after_s is not None:
        headers.append(("retry-after", str(max(1, math.ceil(error.retry_after_s)))))
    if error.status == 401:
        headers.append(("www-authenticate", 'Bearer realm="llamad"'))
    return headers


def cut_short(so_far_bytes: int) -> RequestError:
    """A client that left never reads this; one that merely stalled does."""
    return RequestError(
        f"cannot read the body: only {so_far_bytes} bytes of it came in time",
        kind="body-cut-short",
        status=408,
    )
