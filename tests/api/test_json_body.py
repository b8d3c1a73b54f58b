"""Bodies that are meant to cost more than they weigh."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from llamad.api.json_body import parse_object
from llamad.errors import RequestError
from llamad.json_values import VALUES_MAX


@pytest.mark.parametrize("piece", [b"[],", b'{"":{}},', b'"",', b"0,"])
def test_a_body_of_millions_of_values_is_none(piece: bytes) -> None:
    """Decoded it would be gigabytes, and everybody's streams would wait for that."""
    body = b'{"x": [' + piece * (VALUES_MAX + 1) + b"0]}"
    tracemalloc.start()
    try:
        with pytest.raises(RequestError) as caught:
            parse_object(body)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(body)
    finally:
        tracemalloc.stop()
    assert caught.value.kind == "too-many-values"


def test_a_long_text_has_as_many_commas_as_it_likes() -> None:
    body = b'{"x": "' + b"a, [{" * VALUES_MAX + b'"}'
    assert len(parse_object(body)["x"]) == 5 * VALUES_MAX
    assert gc.isenabled()
