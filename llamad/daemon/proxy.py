"""The front: gunicorn's arbiter as a child of the supervisor, kept running on the public listeners.

    STARTING --every worker said hello, and the port answered--> SERVING --stop--> STOPPING --exit--> STOPPED
    STARTING, SERVING --exit--> PAUSING (back-off) --> STARTING

The listeners belong to the supervisor, so a front that dies costs its own streams only: clients that connect meanwhile
wait in the backlog.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from enum import Enum

from llamad.daemon.kernel import Exit
from llamad.daemon.listeners import Listener
from llamad.daemon.loop import Loop, Timer
from llamad.daemon.process import ChildProcess
from llamad.daemon.spawn import Commands, Spawner
from llamad.wire.proxy import ProxySettings, encode

log = logging.getLogger(__name__)

PAUSE_FIRST_S = 0.5
PAUSE_S_MAX = 30.0
STABLE_AFTER_S = 60.0


class FrontState(Enum):
    STARTING = "starting"
    SERVING = "serving"
    PAUSING = "pausing"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Front:
    """Keeps one arbiter running until `stop`."""

    def __init__(
        self,
        loop: Loop,
        spawner: Spawner,
        commands: Commands,
        settings: ProxySettings,
        listeners: list[Listener],
        *,
        on_log: Callable[[str], None],
        on_stopped: Callable[[], None],
    ) -> None:
        self.state = FrontState.PAUSING
        self.process: ChildProcess | None = None
        self.settings = settings
        self._loop = loop
        self._spawner = spawner
        self._commands = commands
        self._listeners = listeners
        self._on_log = on_log
        self._on_stopped = on_stopped
        self._pause_s = PAUSE_FIRST_S
        self._restart: Timer | None = None

    def start(self) -> None:
        self._restart = None
        self.state = FrontState.STARTING
        try:
            self.process = self._spawner.spawn(
                self._commands.proxy,
                "proxy",
                on_report=self._log_line,
                on_log=self._log_line,
                on_exit=self._exited,
                inherit=tuple(listener.socket.fileno() for listener in self._listeners),
                # Workers that outlive their arbiter finish their streams by themselves.
                whole_group=False,
            )
        except OSError as error:
            log.error("cannot start the front: %s", error)
            self._start_later()
            return
        log.info("front started, pid %d, %d workers", self.process.pid, self.settings.workers)
        self.process.send(encode(self.settings))

    def serving(self) -> None:
        """It has been seen to answer."""
        if self.state is FrontState.STARTING:
            self.state = FrontState.SERVING

    def stop(self) -> None:
        """Take no new connections, finish the running answers."""
        if self.process is None:
            self._stopped()
        elif self.state is not FrontState.STOPPING:
            self.state = FrontState.STOPPING
            self.process.terminate()

    def stop_now(self) -> None:
        """Cut the running answers."""
        if self.process is None:
            self._stopped()
        else:
            self.state = FrontState.STOPPING
            self.process.signal(signal.SIGQUIT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill_group()

    def _log_line(self, line: bytes) -> None:
        self._on_log(line.decode("utf-8", "replace"))

    def _exited(self, ended: Exit) -> None:
        assert self.process is not None
        ran_s = self._loop.now() - self.process.started_at
        self.process = None
        if self.state is FrontState.STOPPING:
            self._stopped()
            return
        how = f"signal {ended.signal}" if ended.signal is not None else f"exit status {ended.exit_code}"
        log.error("front ended after %.1f s with %s, starting another in %.1f s", ran_s, how, self._pause_s)
        if ran_s > STABLE_AFTER_S:
            self._pause_s = PAUSE_FIRST_S
        self._start_later()

    def _start_later(self) -> None:
        self.process = None
        self.state = FrontState.PAUSING
        self._restart = self._loop.call_later(self._pause_s, self.start)
        self._pause_s = min(PAUSE_S_MAX, self._pause_s * 2)

    def _stopped(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        if self.state is not FrontState.STOPPED:
            self.state = FrontState.STOPPED
            self._on_stopped()
