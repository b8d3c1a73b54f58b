"""Start documents of children, see ARCHITECTURE 4.1. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from llamad.config.settings import ModelSpec
from llamad.core.events import Amounts, Placement


class DeviceNames(Protocol):
    """A model may have other names for devices than the books (`gpus`); `environment` is its own."""

    def to_books(self, amounts: Mapping[str, int], environment: Mapping[str, str]) -> dict[str, int]: ...

    def from_books(self, amounts: Mapping[str, int], environment: Mapping[str, str]) -> dict[str, int]: ...


def start_body(
    spec: ModelSpec,
    token: str,
    socket_path: str,
    promised: Mapping[str, Amounts],
    placement: Placement | None = None,
) -> dict[str, Any]:
    """An instance's. `socket_path` "": it listens on a loopback port. `promised`: `reserved`, `maximum`, if known.

    Devices have the names that the model uses.
    """
    placed = {"devices": list(placement.devices), "tensor_split": list(placement.split)} if placement else {}
    return {
        **model_body(spec),
        **{name: dict(amounts) for name, amounts in promised.items()},
        **placed,
        "token": token,
        "transport": "unix" if socket_path else "tcp",
        "socket": socket_path,
        "alias": list(spec.aliases),
    }


def translated(placement: Placement, names: Callable[[Amounts], Mapping[str, int]]) -> Placement:
    """The same with the names of devices that `names` gives amounts by other names."""
    devices = tuple(names(dict.fromkeys(placement.devices, 0)))
    return Placement(devices, names(placement.minimum), names(placement.maximum), placement.split)


def model_body(spec: ModelSpec) -> dict[str, Any]:
    """What instances and measure children are told alike."""
    return {
        "model": spec.name,
        "path": spec.path,
        "options": {
            key: list(value) if isinstance(value, tuple) else value for key, value in spec.options.items()
        },
    }
