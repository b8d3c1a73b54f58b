"""How two answers are compared."""

from __future__ import annotations

import pytest

from tests.likeness.shape import Shape, differences, of_stream, shape


def test_a_shape_is_paths_and_types() -> None:
    document = {
        "object": "list",
        "data": [{"id": 1, "x": None}, {"id": 2.5, "x": "a"}],
        "empty": [],
        "on": True,
    }
    assert shape(document) == {
        "object": "'list'",
        "data[].id": "integer|number",
        "data[].x": "null|string",
        "empty": "array",
        "on": "boolean",
    }


def test_what_is_not_to_be_seen_is_told_as_a_whole() -> None:
    assert shape({"a": {"timings": {"x": 1}}, "b": 1}, ("timings",)) == {
        "a.timings": "object",
        "b": "integer",
    }


def test_a_stream_is_its_first_and_last_events_and_those_between() -> None:
    body = ": ping\n\n" + "".join(f'data: {{"n": {n}}}\n\n' for n in range(4)) + "data: [DONE]\n\n"
    assert of_stream(body) == {
        "first": {"n": 0},
        "between": [{"n": 1}, {"n": 2}],
        "last": {"n": 3},
        "done": True,
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ({"a": "integer"}, {"a": "integer|null"}, []),
        ({"a": "null"}, {"a": "integer"}, ["a: null, not integer"]),
        ({"a": "integer"}, {"b": "integer"}, ["lacks b", "adds a"]),
        ({"a": "array"}, {"a[].x": "integer"}, []),
        ({"a[].x": "integer"}, {"a": "array"}, []),
        ({"a[].x": "integer"}, {"a[].y": "integer"}, ["lacks a[].y", "adds a[].x"]),
    ],
)
def test_differences(ours: Shape, theirs: Shape, found: list[str]) -> None:
    assert differences(ours, theirs) == found
