"""What models were measured to need, kept across restarts: a model is measured once, until something of it changes.

`needs.json`: `{KEY: {"minimum": {DEVICE: bytes}, "maximum": {DEVICE: bytes}, "placements": [{"devices", "split",
"minimum", "maximum"}], "devices": [{"name", "kind", "total_bytes"}]}}`, KEY as `config.measure_key` makes it, the longest unused first. Devices have the names that the model's process uses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llamad.core.events import Placement
from llamad.daemon.reports import choice_totals, placements
from llamad.daemon.statefile import StateFile

log = logging.getLogger(__name__)

KEPT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure child's result: bytes by device with the least and the most context, and the devices that it sees."""

    minimum: Mapping[str, int]
    maximum: Mapping[str, int]
    devices: tuple[Mapping[str, Any], ...] = ()
    placements: tuple[Placement, ...] = ()

    def gpus(self) -> list[tuple[str, int]]:
        """Name and size of each device that is not the host."""
        return sorted(
            (str(device.get("name")), int(total) if type(total := device.get("total_bytes")) is int else 0)
            for device in self.devices
            if device.get("kind") in ("gpu", "igpu")
        )

    def to_document(self) -> dict[str, Any]:
        return {
            "minimum": dict(self.minimum),
            "maximum": dict(self.maximum),
            "devices": [*self.devices],
            "placements": [_placement_document(placement) for placement in self.placements],
        }


def read_measured(document: Any) -> Measured | None:
    """Of such a document, or of the payload of `measured` (ARCHITECTURE 4.1). None: it is neither."""
    if not isinstance(document, dict):
        return None
    minimum, maximum = (choice_totals(document.get(end)) for end in ("minimum", "maximum"))
    devices, ways = document.get("devices"), placements(document.get("placements", []))
    if minimum is None or maximum is None or ways is None or not isinstance(devices, list):
        return None
    seen = tuple(_device(device) for device in devices if isinstance(device, dict))
    return Measured(minimum, maximum, seen, ways)


def _placement_document(placement: Placement) -> dict[str, Any]:
    return {
        "devices": [*placement.devices],
        "split": [*placement.split],
        "minimum": dict(placement.minimum),
        "maximum": dict(placement.maximum),
    }


def _device(device: Mapping[str, Any]) -> dict[str, Any]:
    return {name: device.get(name) for name in ("name", "kind", "total_bytes")}


class Needs:
    """All that is known, in memory and in the file. What cannot be saved is known until the daemon ends."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._known: dict[str, Measured] = {}
        for key, document in file.load().items():
            measured = read_measured(document)
            if measured is not None:
                self._known[key] = measured

    def get(self, key: str) -> Measured | None:
        measured = self._known.pop(key, None)
        if measured is not None:
            self._known[key] = measured
        return measured

    def put(self, key: str, measured: Measured) -> None:
        self._known.pop(key, None)
        self._known[key] = measured
        while len(self._known) > KEPT_MAX:
            del self._known[next(iter(self._known))]
        self._save()

    def drop(self, key: str) -> None:
        if self._known.pop(key, None) is not None:
            self._save()

    def _save(self) -> None:
        try:
            self._file.save({key: measured.to_document() for key, measured in self._known.items()})
        except OSError as error:
            log.warning("cannot keep what was measured: %s", error)
