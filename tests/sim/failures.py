"""Promises about failures: who failed is left alone for a while, and no longer; one retry when memory ran out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llamad.core import actions as a
from llamad.core import events as e

if TYPE_CHECKING:
    from tests.sim.promises import Promises

PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 60.0
EPSILON_S = 1e-6
NOT_OF_FAILURE = (
    "model-not-found",
    "model-not-loaded",
    "queue-full",
    "queue-timeout",
    "stopping",
    "unloaded",
    "does-not-fit",
    "all-pinned",
)


@dataclass
class Failed:
    """A model whose last process ended unasked."""

    at: float
    count: int
    served: bool


class Failures:
    def __init__(self, promises: Promises) -> None:
        self.p = promises
        self._failed: dict[str, Failed] = {}
        self._retried: set[str] = set()
        self._fingerprints: dict[str, str] = {}
        self._buried: set[int] = set()
        self._was_ordered = False

    def before(self, event: e.Event) -> None:
        match event:
            case e.LoadAsked():
                self._failed.pop(event.model.split(":")[0], None)
            case e.ModelsConfigured():
                self._configured(event)
            case e.ChildExited() | e.ChildNotSpawned() if event.child not in self._buried:
                self._exited(event)

    def _configured(self, event: e.ModelsConfigured) -> None:
        now = {entry.name: entry.fingerprint for entry in event.models}
        for name in [name for name in self._failed if now.get(name) != self._fingerprints.get(name)]:
            del self._failed[name]
        self._retried &= now.keys()
        self._fingerprints = now

    def _exited(self, event: e.ChildExited | e.ChildNotSpawned) -> None:
        self._buried.add(event.child)
        process = self.p.w.processes.all[event.child]
        if process.measures:
            return
        if process.stopped:
            self._failed.pop(process.model, None)
            return
        self._was_ordered = process.model in self.p.ordered
        self.p.ordered.discard(process.model)
        known = self._failed.get(process.model)
        served = process.ready or process.asleep
        self._failed[process.model] = Failed(self.p.w.now, known.count + 1 if known else 1, served)

    def noted(self, note: a.Note) -> None:
        """A load that ran out of memory is tried once more, not twice; the retry is no failure."""
        if note.kind == "retry":
            self.p.require(
                note.model not in self._retried, f"{note.model} was tried twice after it ran out of memory"
            )
            self._retried.add(note.model)
            if self._was_ordered:
                self.p.ordered.add(note.model)
            self._failed[note.model] = replace(self._failed[note.model], at=float("-inf"))
        elif note.kind in ("loaded", "failed"):
            self._retried.discard(note.model)

    def retries(self, model: str) -> bool:
        """It ran out of memory, and is about to be tried once more."""
        return model in self._retried

    def spawning(self, model: str) -> None:
        failed = self._failed.get(model)
        if failed is not None and not failed.served:
            since_s = self.p.w.now - failed.at
            self.p.require(
                since_s >= PAUSE_FIRST_S - EPSILON_S, f"{model} is loaded {since_s:.3f} s after it failed"
            )

    def refusing(self, action: a.RefuseLease) -> None:
        """Refused at once for an earlier failure: there must be one, and its pause must not be over."""
        if not isinstance(self.p.event, e.LeaseAsked) or action.kind in NOT_OF_FAILURE:
            return
        model = self.p.w.clients.leases[action.key].model
        failed = self._failed.get(model)
        self.p.require(failed is not None, f"{model} is refused for a failure that it never had: {action}")
        assert failed is not None
        pause_s = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** (failed.count - 1))
        self.p.require(
            self.p.w.now < failed.at + pause_s + EPSILON_S, f"{model} is refused long after it failed"
        )
