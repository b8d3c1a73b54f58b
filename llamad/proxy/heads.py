"""Heads on their way through: what of them stays, goes and is added. Pure.

Both servers frame each hop themselves, so the fields of a hop (RFC 9110, section 7.6.1) and the framing end here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from llamad.errors import speaks_anthropic
from llamad.proxy import cors
from llamad.wire.policy import CLIENT_HEADER
from llamad.wire.stream import TICKET_HEADER

Header = tuple[bytes, bytes]

_OF_A_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_TICKET = TICKET_HEADER.encode()
# Said anew towards an upstream. `expect` has been answered here; the client's key is no business of an instance; whose
# request it is is for us to say.
_OF_A_REQUEST = frozenset(
    (
        b"host",
        b"content-length",
        b"expect",
        b"authorization",
        b"x-api-key",
        b"x-request-id",
        CLIENT_HEADER,
        _TICKET,
    )
)
REQUEST_ID_BYTES = 16
_SANE_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


def request_id_of(given: str | None) -> str:
    """The client's own id when it can stand in a header and a log line, else a new one."""
    if given and _SANE_REQUEST_ID.fullmatch(given):
        return given
    return os.urandom(REQUEST_ID_BYTES).hex()


def id_headers(path: str, request_id: str) -> list[tuple[str, str]]:
    """How an answer says its request's id. Anthropic's clients know it by another name."""
    names = ("x-request-id", "request-id") if speaks_anthropic(path) else ("x-request-id",)
    return [(name, request_id) for name in names]


def request_head(
    method: str,
    target: bytes,
    headers: Iterable[Header],
    *,
    host: str,
    authorization: bytes | None,
    body_bytes: int,
    request_id: str,
    client: str = "",
    ticket: int = 0,
) -> bytes:
    """The head of a request to an upstream; `target` is the path and query as they came."""
    parts = [b"%s %s HTTP/1.1\r\nhost: %s\r\n" % (method.encode(), target, host.encode())]
    parts.extend(b"%s: %s\r\n" % header for header in passed_headers(list(headers)))
    if authorization:
        parts.append(b"authorization: %s\r\n" % authorization)
    if client:
        parts.append(b"%s: %s\r\n" % (CLIENT_HEADER, client.encode()))
    if ticket:
        parts.append(b"%s: %d\r\n" % (_TICKET, ticket))
    if body_bytes or method != "GET":
        parts.append(b"content-length: %d\r\n" % body_bytes)
    parts.append(b"x-request-id: %s\r\n\r\n" % request_id.encode())
    return b"".join(parts)


def passed_headers(headers: list[Header]) -> list[Header]:
    """The headers of a client's request that go on to an upstream."""
    gone = _OF_A_HOP | _OF_A_REQUEST | _named_in_connection(headers)
    return [header for header in headers if header[0].lower() not in gone]


def answer_headers(headers: list[Header]) -> list[tuple[str, str]]:
    """The headers of an upstream's answer that go on to the client; its content length stays.

    What it says to browsers does not: the front says that itself.
    """
    gone = _OF_A_HOP | _named_in_connection(headers) | {b"x-request-id"}
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
        if name.lower() not in gone and not name.lower().startswith(cors.PREFIX)
    ]


def target_of(raw_path: bytes, query: bytes) -> bytes:
    """The request target of an ASGI scope's two parts."""
    return raw_path + b"?" + query if query else raw_path


def _named_in_connection(headers: list[Header]) -> frozenset[bytes]:
    """Fields that a peer declared to be for this hop only."""
    return frozenset(
        field.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for field in value.split(b",")
    )
