"""How much a JSON text would become. Decoded, a byte of it may come to 80 bytes of objects, and takes everybody's time."""

from __future__ import annotations

import re

VALUES_MAX = 1 << 21
"""Two million strings, containers and commas: 0.2 s and some 400 MB at worst. No prompt and no batch has as many."""

_MARKS = (b",", b"[", b"{", b'"')
_PART = re.compile(rb'"[^"]*"?|[,\[{]')


def has_too_many_values(text: bytes | bytearray, most: int = VALUES_MAX) -> bool:
    """Whether it has more than `most` strings, containers and commas; a string counts as one, whatever is in it.

    Only a text that could have so many is looked at closely, and no further than it takes to know.
    """
    if len(text) <= most or sum(map(text.count, _MARKS)) <= most:
        return False
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    return any(number >= most for number, _ in enumerate(_PART.finditer(plain)))
