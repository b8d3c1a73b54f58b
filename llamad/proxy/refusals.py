"""How an error is told to a client: in the shape of the route that it has asked, as a body or inside a stream. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.errors import LlamadError, body_for, speaks_anthropic


def refusal(path: str, body: dict[str, Any]) -> bytes:
    """The body of an answer. `body` as `errors.error_body` makes it."""
    return msgspec.json.encode(body_for(path, body))


def error_frame(path: str, error: LlamadError) -> bytes:
    """One event of a stream that has begun."""
    return framed(path, refusal(path, error.body()))


def framed(path: str, document: bytes) -> bytes:
    """A body without line breaks as an event. Anthropic's clients look at an event's name first."""
    name = b"event: error\n" if speaks_anthropic(path) else b""
    return name + b"data: " + document + b"\n\n"
