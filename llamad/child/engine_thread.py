"""The thread that the engine runs on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)


class Runnable(Protocol):
    """What the thread needs of the engine."""

    def run(self) -> None:
        """Serve until told to stop."""
        ...


class EngineThread(threading.Thread):
    """Runs the engine; tells when it dies before it is asked to stop, because then the process is of no use."""

    def __init__(self, engine: Runnable, on_death: Callable[[], object]) -> None:
        super().__init__(name="engine", daemon=True)
        self._engine = engine
        self._on_death = on_death
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._engine.run()
        except Exception as error:
            log.exception("the engine died")
            self.failure = error
            self._on_death()
