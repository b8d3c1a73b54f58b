"""Reading a JSON object field by field: the value, or an error that names field, expectation and find."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llamad.api.json_body import json_type
from llamad.errors import RequestError


class Fields:
    """Typed reads of one JSON object.

    A field that is null counts as absent: the official clients send null for what is not set. Every read returns
    `default` for an absent field and raises RequestError for one of the wrong type or out of range.
    """

    def __init__(self, document: Mapping[str, Any], where: str = "") -> None:
        self._document = document
        self._where = where

    @property
    def document(self) -> Mapping[str, Any]:
        """All of it, as it came."""
        return self._document

    def raw(self, name: str) -> Any:
        """The value as it came, None if absent."""
        return self._document.get(name)

    def names(self) -> tuple[str, ...]:
        """The fields that are set."""
        return tuple(name for name, value in self._document.items() if value is not None)

    def text(self, name: str, default: str) -> str:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "a string", value)
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def number(self, name: str, default: float, low: float = -math.inf, high: float = math.inf) -> float:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, "a number", value)
        return self._within(name, _finite(value), low, high, value)

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        value = self.raw(name)
        if value is None:
            return default
        # JSON does not tell 5 from 5.0.
        if isinstance(value, bool) or not (
            isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        ):
            raise self.wrong(name, "a whole number", value)
        return int(self._within(name, value, low, high, value))

    def array(self, name: str) -> list[Any] | None:
        value = self.raw(name)
        if value is None or isinstance(value, list):
            return value
        raise self.wrong(name, "an array", value)

    def objects(
        self, name: str, values: Sequence[Any], most: int, *, nouns: str, each: str
    ) -> Iterator[Fields]:
        """The objects in the array `values` of this field, of which there are `most` at the most. `each`: what one is."""
        if len(values) > most:
            raise self.wrong(name, f"at most {most} {nouns}", values)
        for index, value in enumerate(values):
            where = self.path(f"{name}[{index}]")
            if not isinstance(value, dict):
                raise wrong_field(where, each, value)
            yield Fields(value, where)

    def nested(self, name: str) -> Fields:
        """The object under `name`, empty if absent."""
        value = self.raw(name)
        if value is None:
            return Fields({}, self.path(name))
        if not isinstance(value, dict):
            raise self.wrong(name, "an object", value)
        return Fields(value, self.path(name))

    def path(self, name: str) -> str:
        """The field's full name, for messages: `stream_options.include_usage`."""
        return f"{self._where}.{name}" if self._where else name

    def wrong(self, name: str, expected: str, got: object) -> RequestError:
        """The error of a field that is not what it should be."""
        return wrong_field(self.path(name), expected, got)

    def _within(self, name: str, value: float, low: float, high: float, got: object) -> float:
        if low <= value <= high:
            return value
        raise self.wrong(name, _range_text(low, high), got)


def wrong_field(path: str, expected: str, got: object) -> RequestError:
    """A RequestError `cannot read 'path': expected ..., got ...`; the field's name is also in `param`, as OpenAI does."""
    return RequestError(
        f"cannot read {path!r}: expected {expected}, got {json_type(got)}",
        kind="bad-field",
        details={"param": path},
    )


def _finite(value: float) -> float:
    """Whole numbers beyond a float's range count as infinite, which no range admits."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _range_text(low: float, high: float) -> str:
    if math.isinf(high):
        return f"a number of at least {low:g}" if not math.isinf(low) else "a finite number"
    return f"a number from {low:.12g} to {high:.12g}"
