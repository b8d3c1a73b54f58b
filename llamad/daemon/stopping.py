"""How the daemon stops.

    SERVING --asked--> DRAINING --grace over, or asked again--> CUTTING --KILL_AFTER_S--> KILLING --GIVE_UP_AFTER_S--> left

A process that waits in the kernel, for a file on a server that is gone, say, dies of no signal; it is left behind.

Two things end side by side: the front takes no new connections and finishes its answers, and the scheduler refuses who
waits and ends what is idle. The loop is left when both are done and no scan is under way, whatever stage that is in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum

from llamad.core.events import Event, StopAsked
from llamad.daemon.loop import Loop
from llamad.daemon.monitor import Monitor
from llamad.daemon.proxy import Front, FrontState
from llamad.daemon.reload import Reloader

log = logging.getLogger(__name__)

GRACE_S = 30.0
KILL_AFTER_S = 5.0
GIVE_UP_AFTER_S = 5.0


class StopStage(Enum):
    SERVING = "serving"
    DRAINING = "draining"
    CUTTING = "cutting"
    KILLING = "killing"


class Stopper:
    """`on_begin` is told once, when stopping begins. There may be no front yet. `living`: every child, pid to role."""

    def __init__(
        self,
        loop: Loop,
        post: Callable[[Event], None],
        monitor: Monitor,
        reloader: Reloader,
        front: Callable[[], Front | None],
        on_begin: Callable[[], None],
        living: Callable[[], Mapping[int, str]],
    ) -> None:
        self.stage = StopStage.SERVING
        self.gave_up = False
        """Left while a child was still there."""
        self._loop = loop
        self._post = post
        self._monitor = monitor
        self._reloader = reloader
        self._front = front
        self._on_begin = on_begin
        self._living = living
        self._children_gone = False

    def ask(self) -> None:
        """Stop gently; asked again, at once."""
        if self.stage is StopStage.SERVING:
            self._drain()
        elif self.stage is StopStage.DRAINING:
            self._cut()

    def children_gone(self, _: object = None) -> None:
        """The scheduler's last word."""
        self._children_gone = True
        self.leave_when_done()

    def leave_when_done(self) -> None:
        front = self._front()
        front_gone = front is None or front.state is FrontState.STOPPED
        if self._children_gone and front_gone and not self._reloader.scanning:
            self._loop.stop()

    def _drain(self) -> None:
        self.stage = StopStage.DRAINING
        self._on_begin()
        self._loop.call_later(GRACE_S, self._cut)
        self._reloader.stop()
        self._post(StopAsked(self._loop.now() + GRACE_S))
        front = self._front()
        if front is not None:
            front.stop()

    def _cut(self) -> None:
        if self.stage is not StopStage.DRAINING:
            return
        log.warning("stopping at once")
        self.stage = StopStage.CUTTING
        self._loop.call_later(KILL_AFTER_S, self._kill)
        front = self._front()
        if front is not None:
            front.stop_now()
        self._post(StopAsked(self._loop.now()))

    def _kill(self) -> None:
        log.warning("killing what is left")
        self.stage = StopStage.KILLING
        self._loop.call_later(GIVE_UP_AFTER_S, self._give_up)
        self._monitor.kill_all()
        front = self._front()
        if front is not None:
            front.kill()

    def _give_up(self) -> None:
        left = ", ".join(f"{role} (pid {pid})" for pid, role in self._living().items())
        log.error("cannot wait for %s any longer: still there after SIGKILL", left or "the last step")
        self.gave_up = True
        self._loop.stop()
