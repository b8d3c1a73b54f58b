"""Start documents of children, see ARCHITECTURE 3.1. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from llamad.config.settings import ModelSpec
from llamad.core.events import Amounts


class DeviceNames(Protocol):
    """A model may have other names for devices than the books (`gpus`); `environment` is its own."""

    def to_books(self, amounts: Mapping[str, int], environment: Mapping[str, str]) -> dict[str, int]: ...

    def from_books(self, amounts: Mapping[str, int], environment: Mapping[str, str]) -> dict[str, int]: ...


def start_body(
    spec: ModelSpec, token: str, socket_path: str, promised: Mapping[str, Amounts]
) -> dict[str, Any]:
    """An instance's. `socket_path` "": it listens on a loopback port. `promised`: `reserved`, `maximum`, if known."""
    return {
        **model_body(spec),
        **{name: dict(amounts) for name, amounts in promised.items()},
        "token": token,
        "transport": "unix" if socket_path else "tcp",
        "socket": socket_path,
        "alias": list(spec.aliases),
    }


def model_body(spec: ModelSpec) -> dict[str, Any]:
    """What instances and measure children are told alike."""
    return {
        "model": spec.name,
        "path": spec.path,
        "options": {
            key: list(value) if isinstance(value, tuple) else value for key, value in spec.options.items()
        },
    }
