"""Server-sent events as OpenAI's streams use them: one `data:` line of JSON an event."""

from __future__ import annotations

from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"
# A comment, which every parser passes over.
PING = b": ping\n\n"

_encode = msgspec.json.Encoder().encode


def frame(document: Any) -> bytes:
    """One event. JSON escapes newlines, so that one line holds any document."""
    return b"data: " + _encode(document) + b"\n\n"
