"""The leaves: units as people write them, and the error body that every client sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad import units
from llamad.errors import ConfigError, RequestError, UnavailableError


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1k", 1024),
        ("1.5 GiB", 3 * 512 * 1024 * 1024),
        ("128M", 128 << 20),
        ("7 b", 7),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert units.parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "x", "1 XB", "-1", "1e9", "1 2", "1kk"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        units.parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("1.5s", 1.5), ("500ms", 0.5), ("10m", 600), ("2 h", None)]
)
def test_durations(text: str, seconds: float | None) -> None:
    if seconds is None:
        with pytest.raises(ValueError, match="cannot read"):
            units.parse_duration(text)
    else:
        assert units.parse_duration(text) == seconds


@given(st.integers(0, 1 << 50))
def test_formatted_sizes_are_near_the_truth(count: int) -> None:
    assert units.parse_bytes(units.format_bytes(count)) == pytest.approx(count, rel=0.06, abs=1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.34, "340 ms"), (4.2, "4.2 s"), (185, "3 m 05 s"), (7620, "2 h 07 m"), (273600, "3 d 04 h")],
)
def test_formatted_durations(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


def test_an_error_body_has_openais_shape_and_our_kind() -> None:
    error = RequestError("cannot take it", kind="exceed-context-size", details={"n_ctx": 512})
    assert error.body() == {
        "error": {
            "code": 400,
            "message": "cannot take it",
            "type": "exceed_context_size_error",
            "kind": "exceed-context-size",
            "n_ctx": 512,
        }
    }
    assert UnavailableError("no").body()["error"]["type"] == "unavailable_error"


@pytest.mark.parametrize(
    ("file", "line", "text"),
    [("a.ini", 3, "a.ini:3: cannot x"), ("a.ini", 0, "a.ini: cannot x"), ("", 0, "cannot x")],
)
def test_a_configuration_error_says_where(file: str, line: int, text: str) -> None:
    assert str(ConfigError("cannot x", file=file, line=line)) == text
