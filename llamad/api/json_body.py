"""Request bodies: bytes to one JSON object, with short messages whatever is thrown at them."""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.errors import RequestError

_decode = msgspec.json.Decoder().decode


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises RequestError for anything else, in a message that never repeats the body."""
    if not body:
        raise RequestError(
            "cannot read the request body: it is empty, expected a JSON object", kind="bad-json"
        )
    try:
        document = _decode(body)
    except RecursionError:
        raise RequestError("cannot read the request body: it is nested too deep", kind="bad-json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the request body as JSON: {error}", kind="bad-json") from None
    if not isinstance(document, dict):
        raise RequestError(
            f"cannot read the request body: expected a JSON object, got {json_type(document)}",
            kind="bad-json",
        )
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
