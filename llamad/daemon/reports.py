"""What children's reports say, checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
