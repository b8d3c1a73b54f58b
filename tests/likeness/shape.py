"""What a client could notice of a JSON answer beside its values: which fields there are, and of what types. Pure.

A shape maps each field's path (`choices[].message.content`) to the types that stand there, `string|null`. Objects and arrays
that have something in them are told by that. A few values are words that clients compare, so they count as types:
`choices[].finish_reason` is `'stop'`, not a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

Shape = dict[str, str]

_WORDS = ("object", "type", "finish_reason", "stop_type", "role", "code", "event")


def shape(value: Any, unseen: Collection[str] = ()) -> Shape:
    """See above. What is in fields of the names `unseen` is not looked at."""
    found: dict[str, set[str]] = {}
    _collect(value, "", found, unseen)
    return {path: "|".join(sorted(types)) for path, types in sorted(found.items())}


def of_stream(body: str) -> dict[str, Any]:
    """A stream's events by their places: the first, the last, and all between them, and how it ends."""
    events = [_event(part) for part in body.split("\n\n") if part.strip() and not part.startswith(":")]
    documents = [event for event in events if event != "[DONE]"]
    return {
        "first": documents[0],
        "between": documents[1:-1],
        "last": documents[-1],
        "done": events[-1] == "[DONE]",
    }


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """`lacks PATH`, `adds PATH` and `PATH: TYPES, not TYPES`, of two shapes. An array that is empty on one side, as it
    happens, says nothing of what would be in it."""
    lines = [f"lacks {path}" for path in theirs if path not in ours and not _has_array(path, ours)]
    lines += [f"adds {path}" for path in ours if path not in theirs and not _has_array(path, theirs)]
    for path in theirs:
        if path in ours and not set(ours[path].split("|")) <= set(theirs[path].split("|")):
            lines.append(f"{path}: {ours[path]}, not {theirs[path]}")
    return lines


def _has_array(path: str, shape: Mapping[str, str]) -> bool:
    """Is the array that this path is in, or that it is, an empty one in `shape`, or this empty one filled?"""
    arrays = [path[: match.start()] for match in re.finditer(r"\[\]", path)]
    return any(shape.get(array) == "array" for array in arrays) or any(
        other.startswith(f"{path}[]") for other in shape
    )


def _event(part: str) -> Any:
    data = "\n".join(line[6:] for line in part.splitlines() if line.startswith("data: "))
    return data if data == "[DONE]" else json.loads(data)


def _collect(value: Any, path: str, found: dict[str, set[str]], unseen: Collection[str]) -> None:
    if isinstance(value, dict) and value and path.rpartition(".")[2] not in unseen:
        for name, part in value.items():
            _collect(part, f"{path}.{name}" if path else name, found, unseen)
    elif isinstance(value, list) and value:
        for part in value:
            _collect(part, f"{path}[]", found, unseen)
    else:
        found.setdefault(path, set()).add(_type(value, path))


def _type(value: Any, path: str) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float() | str() if path.rpartition(".")[2] in _WORDS:
            return repr(value)
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
