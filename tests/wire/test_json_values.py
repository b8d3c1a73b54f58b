"""How many values a JSON text has is known without making them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.json_values import has_too_many_values

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a,[{"\\\n\u20ac', max_size=12),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=8),
    max_leaves=40,
)


def parts(value: Any) -> int:
    """Strings, containers and commas."""
    match value:
        case str():
            return 1
        case list():
            return 1 + max(0, len(value) - 1) + sum(map(parts, value))
        case dict():
            return 1 + max(0, len(value) - 1) + len(value) + sum(map(parts, value.values()))
        case _:
            return 0


@given(DOCUMENTS, st.booleans())
def test_it_counts_what_a_decoder_would_make(document: Any, ascii_only: bool) -> None:
    text, count = json.dumps(document, ensure_ascii=ascii_only).encode(), parts(document)
    assert not has_too_many_values(text, count)
    if count:
        assert has_too_many_values(text, count - 1)


@pytest.mark.parametrize("broken", [b'["a', b'"' * 9, b'"\\', b'["\\"', b"[,,,,", b"\xff[["])
def test_a_broken_text_is_counted_too(broken: bytes) -> None:
    for most in range(12):
        has_too_many_values(broken, most)
