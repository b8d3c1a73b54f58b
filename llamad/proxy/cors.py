"""What browsers are told about other origins, by llama-server's `--cors-*` options. Pure.

Each header has one value: an origin out of a list is said back alone, never the list. With `*` and credentials the
origin is said back too, because browsers take no `*` together with credentials. For the same reason, and because `*`
covers no `Authorization`, a preflight's wished headers are said back where all are allowed. An instance's own words on
this are dropped on the way: two answers are none.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from llamad.wire.policy import Cors

PREFIX = b"access-control-"
EXPOSED = (
    "Retry-After, WWW-Authenticate, X-Conversation-Id, X-Llamad-Left-Out, X-Queue-Position, X-Request-Id"
)
HEADER_BYTES_MAX = 4096

_LOCAL_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))

Headers = Iterable[tuple[bytes, bytes]]
Said = list[tuple[str, str]]


def answer_headers(cors: Cors, request: Headers) -> Said:
    """The headers that every answer gets."""
    origin = _first(request, b"origin")
    reflects = not _says_star(cors)
    said: Said = [("vary", "Origin")] if reflects else []
    allowed = origin if reflects else "*"
    if not allowed or (reflects and not _allows(cors, allowed)):
        return said
    said.append(("access-control-allow-origin", allowed))
    if cors.credentials:
        said.append(("access-control-allow-credentials", "true"))
    said.append(("access-control-expose-headers", EXPOSED))
    return said


def allows_origin(cors: Cors, request: Headers) -> bool:
    """For WebSockets, of which browsers ask nobody. Who names no origin is no browser."""
    request = list(request)
    named = any(name.lower() == b"origin" for name, _ in request)
    return not named or _allows(cors, _first(request, b"origin"))


def preflight_headers(cors: Cors, request: Headers) -> Said:
    """What the answer to an OPTIONS request says on top."""
    wished = _first(request, b"access-control-request-headers")
    headers = wished if "*" in cors.headers and wished else ", ".join(cors.headers)
    return [
        ("access-control-allow-methods", ", ".join(cors.methods)),
        ("access-control-allow-headers", headers),
    ]


def _says_star(cors: Cors) -> bool:
    return "*" in cors.origins and not cors.credentials


def _allows(cors: Cors, origin: str) -> bool:
    if "*" in cors.origins or origin in cors.origins:
        return True
    return "localhost" in cors.origins and _is_local(origin)


def _is_local(origin: str) -> bool:
    try:
        return urlsplit(origin).hostname in _LOCAL_HOSTS
    except ValueError:
        return False


def _first(headers: Headers, wanted: bytes) -> str:
    """A header's value if it can be said back as it is, else ""."""
    for name, value in headers:
        if name.lower() == wanted:
            text = value.decode("latin-1").strip()
            return text if text.isascii() and text.isprintable() and len(text) <= HEADER_BYTES_MAX else ""
    return ""
