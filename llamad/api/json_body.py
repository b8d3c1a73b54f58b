"""Request bodies: bytes to one JSON object, with short messages whatever is thrown at them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from llamad.errors import RequestError
from llamad.json_values import VALUES_MAX, has_too_many_values

_decode = msgspec.json.Decoder().decode


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises RequestError for anything else, in a message that never repeats the body."""
    document = _parse(body, "a JSON object")
    if not isinstance(document, dict):
        raise _not_expected("a JSON object", document)
    return document


def parse_array(body: bytes) -> list[Any]:
    """The JSON array in `body`; errors as of `parse_object`."""
    document = _parse(body, "a JSON array")
    if not isinstance(document, list):
        raise _not_expected("a JSON array", document)
    return document


def json_type(value: object) -> str:
    """What a JSON value is, in words: `a string`, `the number 3`, `null`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value:.15g}" if abs(value) < 1e300 else "a very large number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array" if value else "an empty array"
        case _:
            return "an object"


def _parse(body: bytes, expected: str) -> Any:
    if not body:
        raise RequestError(f"cannot read the request body: it is empty, expected {expected}", kind="bad-json")
    if has_too_many_values(body):
        raise RequestError(
            f"cannot read the request body: it has over {VALUES_MAX} values", kind="too-many-values"
        )
    try:
        with _no_collection():
            return _decode(body)
    except RecursionError:
        raise RequestError("cannot read the request body: it is nested too deep", kind="bad-json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the request body as JSON: {error}", kind="bad-json") from None


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage is looked for meanwhile: a decoder makes none, and looking takes five times as long as decoding."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _not_expected(expected: str, document: object) -> RequestError:
    return RequestError(
        f"cannot read the request body: expected {expected}, got {json_type(document)}", kind="bad-json"
    )
