"""What an answer says of tools that were left out."""

from __future__ import annotations

import pytest

from llamad.api.hosted import header_text


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        (["web_search"], "web_search"),
        (["web_search_20250305", "mcp"], "web_search_20250305, mcp"),
        (["a\r\nset-cookie: x", "größe"], "'a\\r\\nset-cookie: x', 'gr\\xf6\\xdfe'"),
        (["x" * 100], "x" * 40),
        ([f"t{index}" for index in range(1024)], ", ".join(f"t{index}" for index in range(16))),
    ],
    ids=["one", "two", "nonsense", "long", "many"],
)
def test_a_header_has_one_line_whatever_types_are_called(kinds: list[str], text: str) -> None:
    assert header_text(kinds) == text
