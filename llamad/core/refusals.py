"""Why a model gets no room, in words with numbers."""

from __future__ import annotations

from collections.abc import Sequence

from llamad.core.events import Amounts
from llamad.core.ledger import PROCESSES
from llamad.core.model import Model
from llamad.core.state import Refusal, SchedulerState

_GIB = 1 << 30
_MIB = 1 << 20


def amount_words(device: str, amount: int) -> str:
    """`7.9 GiB`, `310 MiB`, `2 processes`."""
    if device == PROCESSES:
        return f"{amount} process{'es' if amount != 1 else ''}"
    return f"{amount / _GIB:.1f} GiB" if abs(amount) >= _GIB else f"{amount / _MIB:.0f} MiB"


def explain_shortage(s: SchedulerState, need: Amounts, devices: Amounts) -> str:
    """`7.9 GiB needed on CUDA0, 6.1 GiB free`, for each of `devices`."""
    parts = []
    for name in devices:
        device = s.ledger.device(name)
        assert device is not None
        if name == PROCESSES:
            parts.append(f"{device.held} of at most {device.total} models are loaded")
        else:
            free = max(0, device.available)
            parts.append(
                f"{amount_words(name, need[name])} needed on {name}, {amount_words(name, free)} free"
            )
    return "; ".join(parts)


def too_large_refusal(s: SchedulerState, model: Model, need: Amounts) -> Refusal | None:
    """It would not fit if it had the devices to itself."""
    for name, amount in need.items():
        device = s.ledger.device(name)
        if device is not None and name != PROCESSES and amount > device.total - device.margin:
            margin = f", {amount_words(name, device.margin)} of them kept free" if device.margin else ""
            message = (
                f"cannot load {model.name!r}: {amount_words(name, amount)} needed on {name}, "
                f"which has {amount_words(name, device.total)}{margin}"
            )
            return Refusal("does-not-fit", 503, message, retry_after_s=60.0, details=device_numbers(s, need))
    return None


def pins_refusal(s: SchedulerState, model: Model, pinned: Sequence[Model], short: Amounts) -> Refusal:
    """All that is in the way is pinned: waiting would not help."""
    need = {name: amount + max(0, s.ledger.available().get(name, 0)) for name, amount in short.items()}
    pins = ", ".join(repr(other.name) for other in sorted(pinned, key=lambda other: other.name))
    verb = "are" if len(pinned) > 1 else "is"
    message = f"cannot load {model.name!r}: {explain_shortage(s, need, short)}, and {pins} {verb} pinned"
    return Refusal("all-pinned", 503, message, retry_after_s=30.0, details=device_numbers(s, need))


def device_numbers(s: SchedulerState, need: Amounts) -> dict[str, object]:
    """`{"devices": {name: {"need", "available"}}}` for programs, as far as the books know the devices."""
    available = s.ledger.available()
    return {
        "devices": {
            name: {"need": amount, "available": max(0, available[name])}
            for name, amount in need.items()
            if name in available
        }
    }
