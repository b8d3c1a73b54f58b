"""What children's reports say, checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llamad.core.events import Placement
from llamad.errors import ProtocolError
from llamad.wire.child import State

SLOTS_MAX = 100_000
DEVICES_MAX = 256


def device_totals(document: Any) -> dict[str, int] | None:
    """`{DEVICE: bytes}` of that, or of `{DEVICE: {..., "total": bytes}}`. None for anything else."""
    if not isinstance(document, dict) or not document or len(document) > DEVICES_MAX:
        return None
    totals = {name: _total(value) for name, value in document.items()}
    known = {name: total for name, total in totals.items() if total is not None}
    return known if len(known) == len(totals) else None


def _total(value: Any) -> int | None:
    if isinstance(value, dict):
        value = value.get("total")
    return value if type(value) is int and value >= 0 else None


def placements(document: Any) -> tuple[Placement, ...] | None:
    """Of the payload of `measured`, by the names that its process uses. None: they are not as they should be."""
    if not isinstance(document, list) or len(document) > DEVICES_MAX:
        return None
    found = [_placement(each) for each in document]
    known = tuple(placement for placement in found if placement is not None)
    return known if len(known) == len(found) else None


def _placement(document: Any) -> Placement | None:
    if not isinstance(document, dict):
        return None
    devices, split = document.get("devices"), document.get("split")
    minimum, maximum = (choice_totals(document.get(end)) for end in ("minimum", "maximum"))
    if minimum is None or maximum is None or not isinstance(devices, list) or not isinstance(split, list):
        return None
    if not devices or not all(isinstance(name, str) for name in devices):
        return None
    if len(split) not in (0, len(devices)) or not all(type(share) in (int, float) for share in split):
        return None
    return Placement(tuple(devices), minimum, maximum, tuple(map(float, split)))


def choice_totals(choice: Any) -> dict[str, int] | None:
    """Of a choice of the measure role (`{"bytes": ...}`), or of its totals by device."""
    return device_totals(choice["bytes"] if isinstance(choice, dict) and "bytes" in choice else choice)


def slots(report: State) -> int:
    """How many requests a ready child works on at once; 0: it does not say."""
    number = report.payload.get("n_slots")
    return number if isinstance(number, int) and 0 < number < SLOTS_MAX else 0


def load_progress(payload: Mapping[str, Any]) -> float:
    """0.0 to 1.0 over all stages of a `loading` payload; llama.cpp reports each stage by itself."""
    stages = payload.get("stages") or [payload.get("current")]
    value = payload.get("value")
    if not isinstance(stages, list) or not isinstance(value, int | float):
        return 0.0
    current = payload.get("current")
    done = stages.index(current) if current in stages else 0
    return min(1.0, max(0.0, (done + float(value)) / len(stages)))


def checked_address(payload: Mapping[str, Any], socket_path: str) -> str:
    """Where the instance listens. Only loopback, or the socket it was told to make: raises ProtocolError."""
    address = payload.get("address")
    expected = f"unix:{socket_path}" if socket_path else "127.0.0.1:"
    if not isinstance(address, str) or not (
        address == expected if socket_path else address.startswith(expected)
    ):
        raise ProtocolError(f"cannot use the instance's address {address!r}: expected {expected}…")
    return address
