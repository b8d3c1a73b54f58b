"""Server-sent events as the dialects use them: one event a document, one `data:` line of JSON each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


def frame(document: Any) -> bytes:
    """An event without a name. JSON escapes newlines, so that one line holds any document."""
    return b"data: " + _encode(document) + b"\n\n"


def named_frame(document: dict[str, Any]) -> bytes:
    """An event that is called what the document's `type` is."""
    return b"event: " + str(document["type"]).encode() + b"\n" + frame(document)


@dataclass(frozen=True, slots=True)
class Framing:
    """How a dialect's documents become a stream. `ping`: what says that it lives; `done`: what ends it."""

    frame: Callable[[Any], bytes] = frame
    # A comment, which every parser passes over.
    ping: bytes = b": ping\n\n"
    done: bytes = b""


BARE = Framing()
OPENAI = Framing(done=b"data: [DONE]\n\n")
NAMED = Framing(frame=named_frame)
ANTHROPIC = Framing(frame=named_frame, ping=named_frame({"type": "ping"}))
