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
    spec: ModelSpec, token: str, socket_path: str, reserved: Amounts | None = None
) -> dict[str, Any]:
    """An instance's. `socket_path` "": it listens on a loopback port."""
    return {
        **model_body(spec, reserved),
        "token": token,
        "transport": "unix" if socket_path else "tcp",
        "socket": socket_path,
        "alias": list(spec.aliases),
    }


def model_body(spec: ModelSpec, reserved: Amounts | None = None) -> dict[str, Any]:
    """What instances and measure children are told alike. `reserved`: bytes by device."""
    body: dict[str, Any] = {
        "model": spec.name,
        "path": spec.path,
        "options": {
            key: list(value) if isinstance(value, tuple) else value for key, value in spec.options.items()
        },
    }
    return body if reserved is None else {**body, "reserved": dict(reserved)}
