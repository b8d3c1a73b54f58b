"""A small JSON document in the state directory, which outlives the daemon.

It is written whole to a file beside it and renamed over, so that a reader finds the old one or the new one, whenever the
daemon dies. It is not forced to the disk: that would wait, and a power cut may cost the last change, never the file.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from llamad.config.files import user_name

log = logging.getLogger(__name__)

FILE_BYTES_MAX = 8 << 20


def warn_if_unwritable(directory: str) -> None:
    """Say at the start that nothing will be kept, instead of at the first order that cannot be. Makes nothing."""
    place = next(path for path in (Path(directory), *Path(directory).parents) if os.path.exists(path))
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK, effective_ids=True):
        return
    reason = f"no right to write to {place}" if place.is_dir() else f"{place} is no directory"
    log.warning("cannot keep pins and measurements in %s as user '%s': %s", directory, user_name(), reason)


class StateFile:
    """`name` in `directory`, which is made when it is first needed."""

    def __init__(self, directory: str, name: str) -> None:
        self.path = os.path.join(directory, name)
        self._directory = directory

    def load(self) -> dict[str, Any]:
        """What was saved last; empty when there is nothing, or nothing that can be read."""
        try:
            with open(self.path, "rb") as file:
                document = json.loads(file.read(FILE_BYTES_MAX))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            log.warning("cannot use %s, it counts as empty: %s", self.path, error)
            return {}
        return document if isinstance(document, dict) else {}

    def save(self, document: dict[str, Any]) -> None:
        """Raises OSError."""
        os.makedirs(self._directory, mode=0o750, exist_ok=True)
        new = f"{self.path}.new"
        with open(new, "w", encoding="utf-8") as file:
            json.dump(document, file, ensure_ascii=True, indent=1)
        os.replace(new, self.path)
