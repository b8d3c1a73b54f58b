"""The daemon's state, and everybody who is told of it: process title, systemd, the event ring, the log."""

from __future__ import annotations

import logging
from enum import Enum

import setproctitle

from llamad.core.actions import Note
from llamad.daemon.driver import Driver
from llamad.daemon.loop import Loop
from llamad.daemon.systemd import Notifier
from llamad.observe.events import EventRing, Happening

log = logging.getLogger(__name__)

SAID_ELSEWHERE = frozenset(("evict", "exited", "measure"))
"""Kinds of notes that a neighbour's log line repeats: who is evicted also stops, who exits has been seen to end."""

GONE_WRONG = frozenset(("failed", "retry", "give-up", "measure-failed", "measured-wrong", "no-gpu"))
"""Kinds of notes that tell of something that was not meant to happen."""


class DaemonState(Enum):
    """See `supervisor` for the transitions."""

    STARTING = "starting"
    RUNNING = "running"
    RELOADING = "reloading"
    STOPPING = "stopping"


class Announcer:
    """Owner of the daemon's state. Title and status line follow it, once a pass of the loop at most."""

    def __init__(self, loop: Loop, driver: Driver, notifier: Notifier) -> None:
        self.state = DaemonState.STARTING
        self.events = EventRing()
        self._loop = loop
        self._driver = driver
        self._notifier = notifier
        self._refresh_due = False

    @property
    def stopping(self) -> bool:
        return self.state is DaemonState.STOPPING

    def ready(self, listeners: str) -> None:
        """The public port answers. Counts the first time only."""
        if self.state is not DaemonState.STARTING:
            return
        self.state = DaemonState.RUNNING
        self.note(Note("ready", "", f"ready on {listeners}"))
        self._notifier.ready(self.summary())

    def reloading(self) -> None:
        """To be followed by `reloaded`. Before the start is complete there is nothing to reload for systemd."""
        if self.state is DaemonState.RUNNING:
            self.state = DaemonState.RELOADING
            self._notifier.reloading()
            self.refresh()

    def reloaded(self) -> None:
        if self.state is DaemonState.RELOADING:
            self.state = DaemonState.RUNNING
            self._notifier.ready(self.summary())
            self.refresh()

    def stop(self, text: str) -> None:
        self.state = DaemonState.STOPPING
        self.note(Note("stopping", "", text))
        self._notifier.stopping(text)

    def note(self, note: Note) -> None:
        """A decision of the scheduler's, or of the daemon itself (`model` "")."""
        wall = self._loop.clock.wall()
        self.events.append(Happening(wall, note.kind, note.model, note.text, note.numbers))
        log.log(_level(note.kind), "%s%s", f"{note.model}: " if note.model else "", note.text)
        self.refresh()

    def refresh(self) -> None:
        if not self._refresh_due:
            self._refresh_due = True
            self._loop.before_sleep(self._refresh)

    def summary(self) -> str:
        """`running, 2 models loaded`."""
        loaded = sum(view.state == "loaded" for view in self._driver.view().models)
        return f"{self.state.value}, {loaded} model{'' if loaded == 1 else 's'} loaded"

    def log_everything(self) -> None:
        """The whole state, for a person who sent SIGUSR1."""
        view, now = self._driver.view(), self._loop.now()
        log.info("%s, %d of at most %d models resident", self.state.value, view.residents, view.models_max)
        for model in view.models:
            counts = f"{model.leases} leases, {model.waiting} waiting"
            log.info("  %s: %s, %s: %s", model.name, model.state, counts, model.reason)
        for entry in view.queue:
            log.info("  queued: %s, %d waiters for %.1f s", entry.model, entry.waiters, now - entry.since)

    def _refresh(self) -> None:
        self._refresh_due = False
        summary = self.summary()
        setproctitle.setproctitle(f"llamad: supervisor [{summary}]")
        self._notifier.status(summary)


def _level(kind: str) -> int:
    if kind in GONE_WRONG:
        return logging.WARNING
    return logging.DEBUG if kind in SAID_ELSEWHERE else logging.INFO
