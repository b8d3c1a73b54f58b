"""Which key a request came with. Pure.

A client says its key as `Authorization: Bearer KEY` or, as Anthropic's clients do, `x-api-key: KEY`. What is compared
are digests, all of them, whether or not an earlier one was the right one: the time it takes tells nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from llamad.errors import RequestError
from llamad.wire.policy import Key

CANDIDATES_MAX = 4
_BEARER = b"bearer "


class KeyRefused(RequestError):
    """No key that opens anything (401)."""

    kind = "key-missing"
    status = 401


class Keyring:
    """All keys that open the door."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = [(key.digest.encode(), key) for key in keys]

    def find(self, text: bytes) -> Key | None:
        """The key that `text` is."""
        digest = hashlib.sha256(text).hexdigest().encode()
        found = None
        for known, key in self._keys:
            if hmac.compare_digest(known, digest):
                found = key
        return found

    def key_of(self, headers: Iterable[tuple[bytes, bytes]]) -> Key:
        """The key that a request carries. Raises KeyRefused, whose text has nothing of what was sent."""
        candidates = candidates_of(headers)
        if not candidates:
            raise KeyRefused(
                "cannot serve a request without a key: send Authorization: Bearer KEY, or x-api-key: KEY"
            )
        for candidate in candidates:
            key = self.find(candidate)
            if key is not None:
                return key
        raise KeyRefused("cannot serve this key: it is not known here", kind="key-unknown")


def candidates_of(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Everything in a request's head that may be meant as a key. A bare `Authorization: KEY` counts, as in llama-server."""
    candidates = []
    for name, value in headers:
        lower = name.lower()
        if lower not in (b"authorization", b"x-api-key"):
            continue
        text = value.strip()
        if lower == b"authorization" and text[: len(_BEARER)].lower() == _BEARER:
            text = text[len(_BEARER) :].strip()
        if text:
            candidates.append(text)
    return candidates[:CANDIDATES_MAX]
