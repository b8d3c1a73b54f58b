"""Values of the API as people read them: numbers by their unit, nothing that could drive the terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llamad.units import format_bytes, format_duration

NOTHING = "-"

# C0 without tab and newline, DEL, C1: what could move the cursor, recolour or answer back.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """`text` with control characters spelled out (`\\x1b`): names, reasons, logs and answers come from others."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def one_line(text: str) -> str:
    """The same on one line, for cells."""
    return " ".join(printable(text).split())


def ago(seconds: float | None) -> str:
    """`4.2 s ago`; a dash for never."""
    return NOTHING if seconds is None else f"{format_duration(seconds)} ago"


def duration(seconds: float | None) -> str:
    return NOTHING if seconds is None else format_duration(seconds)


def size(count: float | None) -> str:
    return NOTHING if count is None else format_bytes(count)


def memory(value: Any) -> str:
    """Bytes held, part by part: `host 512.0 MiB, CUDA0 7.9 GiB`."""
    parts = [f"{label(name)} {format_bytes(count)}" for name, count in _parts(value).items() if count]
    return ", ".join(parts) or NOTHING


def memory_total(value: Any) -> str:
    """Bytes held, all parts together."""
    return size(sum(_parts(value).values()) or None)


def _parts(value: Any) -> dict[str, float]:
    """Numbers by name of a memory document: a plain number is one part, a document in it is parts of its own."""
    if isinstance(value, bool) or not isinstance(value, int | float | Mapping):
        return {}
    if not isinstance(value, Mapping):
        return {"all": value}
    if "held_bytes" in value:
        return _parts(value["held_bytes"])
    parts: dict[str, float] = {}
    for name, item in value.items():
        inner = _parts(item)
        parts.update(
            {name: inner["all"]}
            if set(inner) == {"all"}
            else {f"{name} {key}": n for key, n in inner.items()}
        )
    return parts


AMOUNTS = frozenset(("reserved", "held", "minimum", "maximum", "need", "available", "short"))
"""Fields whose value says how much of each device: bytes, but for the count of `processes`."""
PROCESSES = "processes"


def amounts(value: Mapping[str, float], *, zeros: bool = False) -> str:
    """`host 1.2 GiB, CUDA0 7.9 GiB, processes 1`; what is nothing is left out unless `zeros` are wanted."""
    parts = (
        f"{one_line(device)} {count if device == PROCESSES else format_bytes(count)}"
        for device, count in value.items()
        if count or zeros
    )
    return ", ".join(parts) or NOTHING


def labelled(name: str, value: Any) -> str:
    """`models-max 4`, `drain-after 30.0 s` from a field's name and value."""
    return f"{label(name)} {scalar(name, value)}"


def label(name: str) -> str:
    """A field's name without its unit, as the option is spelled."""
    return re.sub(r"_(bytes|s)$", "", name).replace("_", "-")


def scalar(name: str, value: Any) -> str:
    """A field's value by the unit that its name ends with."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(name, value)
    if isinstance(value, list | tuple):
        return ", ".join(one_line(str(item)) for item in value) or NOTHING
    if isinstance(value, Mapping) and name in AMOUNTS:
        # That none is left is what decides.
        return amounts(value, zeros=name == "available")
    if isinstance(value, Mapping):
        return ", ".join(labelled(str(key), item) for key, item in value.items()) or NOTHING
    return one_line(str(value)) or NOTHING


def _number(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name.endswith("_s"):
        return format_duration(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
