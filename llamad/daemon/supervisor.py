"""The supervisor: every part of the shell, wired together, from start to stop.

    STARTING --first scan applied, port answers--> RUNNING <--reload--> RELOADING
    (any) --TERM, INT--> STOPPING --front gone, last child gone--> exit 0

Stopping takes two ways at once: the front is told to take no new connections and to finish its answers, and the scheduler
to refuse who waits and to end what is idle. Both have until `STOP_GRACE_S`; a second signal cuts that short.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping
from enum import Enum

import setproctitle

from llamad.clock import Clock
from llamad.config.settings import Settings
from llamad.core import actions
from llamad.core.events import StopAsked
from llamad.core.scheduler import Scheduler
from llamad.daemon.admin import AdminServer
from llamad.daemon.admin_models import ModelRoutes
from llamad.daemon.admin_routes import Router
from llamad.daemon.admin_status import DaemonFacts, StatusRoutes
from llamad.daemon.driver import Driver
from llamad.daemon.kernel import Kernel
from llamad.daemon.leases import LeaseServer
from llamad.daemon.listeners import (
    InstanceLock,
    Listener,
    listen_at,
    make_runtime_dir,
    may_give_to,
    operators_gid,
)
from llamad.daemon.loop import Loop
from llamad.daemon.monitor import Monitor, remove_quietly
from llamad.daemon.proxy import Front, FrontState
from llamad.daemon.readiness import HealthProbe
from llamad.daemon.reload import Changes, Reloader, limits
from llamad.daemon.scan import Scan, ScanResult
from llamad.daemon.spawn import Commands, Spawner
from llamad.daemon.systemd import Notifier, Watchdog, watchdog_interval_s
from llamad.daemon.tickets import Tickets
from llamad.errors import LlamadError
from llamad.observe.events import EventRing, Happening
from llamad.observe.log import relay
from llamad.observe.ring import LineRing
from llamad.wire.proxy import ProxySettings

log = logging.getLogger(__name__)

STOP_GRACE_S = 30.0
KILL_AFTER_S = 5.0
EXIT_CLEAN = 0
EXIT_BAD_CONFIG = 1


class DaemonState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    RELOADING = "reloading"
    STOPPING = "stopping"


class Supervisor:
    """One run of the daemon. `run` returns the exit status."""

    def __init__(
        self,
        settings: Settings,
        argv: list[str],
        environ: Mapping[str, str],
        clock: Clock,
        log_ring: LineRing,
        listeners: list[Listener],
        *,
        kernel: Kernel | None = None,
        commands: Commands | None = None,
    ) -> None:
        self.state = DaemonState.STARTING
        self._settings = settings
        self._argv = argv
        self._environ = environ
        self._clock = clock
        self._kernel = kernel or Kernel()
        self._commands = commands or Commands()
        self._listeners = listeners
        self._loop = Loop(clock)
        self._events = EventRing()
        self._notifier = Notifier(environ)
        self._lock = InstanceLock(settings.runtime_dir)
        self._started_at, self._started_wall = clock.monotonic(), clock.wall()
        self._exit_status = EXIT_CLEAN
        self._spawner = Spawner(self._loop, self._kernel, environ)
        self._driver = Driver(self._loop, Scheduler(limits(settings)))
        self._reloader = Reloader(settings, self._start_scan, self._driver.post)
        self._monitor = Monitor(
            self._spawner, self._commands, settings, self._reloader.spec, self._driver.post
        )
        self._tickets = Tickets(self._driver.post)
        self._log_ring = log_ring
        self._leases: LeaseServer | None = None
        self._admin: AdminServer | None = None
        self._front: Front | None = None
        self._probe: HealthProbe | None = None
        self._children_gone = False
        self._title_due = False
        self._ready = False
        self._stop_signals = 0

    def run(self) -> int:
        """Start, serve until told to stop, leave nothing behind. Raises ConfigError when it cannot start."""
        make_runtime_dir(self._settings.runtime_dir)
        self._lock.take()
        try:
            self._open()
            self._loop.run()
        finally:
            self._close()
        return self._exit_status

    # ---- start

    def _open(self) -> None:
        self._perform_actions()
        self._handle_signals()
        self._open_sockets()
        interval_s = watchdog_interval_s(self._environ, os.getpid())
        if interval_s is not None:
            Watchdog(self._loop, self._notifier, interval_s)
        self._say_state()
        self._reloader.reload(self._first_scan_done)

    def _perform_actions(self) -> None:
        performs = self._driver.performs
        performs(actions.Spawn, self._monitor.spawn)
        performs(actions.AskExit, self._monitor.ask_exit)
        performs(actions.Terminate, self._monitor.terminate)
        performs(actions.Kill, self._monitor.kill)
        performs(actions.AnswerTicket, self._tickets.answer)
        performs(actions.Note, self._note)
        performs(actions.Finish, self._all_children_gone)

    def _handle_signals(self) -> None:
        # Inherited as ignored it would make the kernel reap our children before us.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        handlers: dict[int, Callable[[], None]] = {
            signal.SIGTERM: self._stop_signalled,
            signal.SIGINT: self._stop_signalled,
            signal.SIGHUP: self._reload_signalled,
            signal.SIGUSR1: self._log_state,
        }
        for number, handler in handlers.items():
            self._loop.on_signal(number, handler)

    def _open_sockets(self) -> None:
        gid = operators_gid()
        gid = gid if may_give_to(gid) else -1
        admin_socket = listen_at(self._kernel, self._path("admin.sock"), 0o660, gid)
        lease_socket = listen_at(self._kernel, self._path("lease.sock"), 0o600)
        leases = LeaseServer(
            self._loop, self._kernel, lease_socket, self._monitor, self._driver.post, self._check_ready
        )
        performs = self._driver.performs
        performs(actions.QueueLease, leases.queue)
        performs(actions.GrantLease, leases.grant)
        performs(actions.RefuseLease, leases.refuse)
        performs(actions.EndLease, leases.end)
        models = ModelRoutes(self._loop, self._driver, self._monitor, self._reloader, self._tickets)
        status = StatusRoutes(
            self._loop,
            self._driver,
            self._monitor,
            self._reloader,
            models,
            self._log_ring,
            self._events,
            self._facts,
        )
        router = Router([*models.routes(), *status.routes()], gid)
        self._leases = leases
        self._admin = AdminServer(self._loop, self._kernel, admin_socket, router.handle)

    def _path(self, name: str) -> str:
        return os.path.join(self._settings.runtime_dir, name)

    def _start_front(self) -> None:
        self._front = Front(
            self._loop,
            self._spawner,
            self._commands,
            self._front_settings(),
            self._listeners,
            on_log=lambda line: relay(log, "front", line),
            on_stopped=self._leave_when_done,
        )
        self._front.start()

    def _front_settings(self) -> ProxySettings:
        settings = self._settings
        return ProxySettings(
            lease_socket=self._path("lease.sock"),
            admin_socket=self._path("admin.sock"),
            listeners=len(self._listeners),
            workers=settings.workers,
            max_body_bytes=settings.max_body_bytes,
            timeout_s=int(settings.timeout_s),
            log_level=settings.log_level,
        )

    def _start_scan(self, on_done: Callable[[ScanResult], None]) -> Scan:
        def done(result: ScanResult) -> None:
            on_done(result)
            self._leave_when_done()

        return Scan(self._loop, self._spawner, self._commands, self._argv, done)

    def _first_scan_done(self, outcome: Changes | LlamadError) -> None:
        if self.state is DaemonState.STOPPING:
            return
        if isinstance(outcome, LlamadError):
            log.error("%s", outcome)
            self._exit_status = EXIT_BAD_CONFIG
            self._begin_stop()
            return
        for problem in self._reloader.registry.problems:
            log.warning("%s", problem)
        log.info("%d models are configured", len(self._reloader.registry.models))
        # Not before: until then every model would be unknown to a client.
        self._start_front()

    # ---- readiness and what people see

    def _check_ready(self) -> None:
        """READY needs a hello of every worker first, and then an answer over the public port."""
        if self._leases is None or self._front is None or self._front.state is not FrontState.STARTING:
            return
        if self._probe is None and len(self._leases.worker_pids()) >= self._settings.workers:
            self._probe = HealthProbe(self._loop, self._kernel, self._listeners[0], self._port_answers)

    def _port_answers(self) -> None:
        self._probe = None
        if self._front is not None:
            self._front.serving()
        if not self._ready and self.state is DaemonState.STARTING:
            self._ready = True
            self.state = DaemonState.RUNNING
            log.info("ready on %s", ", ".join(listener.name for listener in self._listeners))
            self._note(actions.Note("ready", "", "the public port answers"))
            self._notifier.ready(self._summary())
        self._say_state()

    def _summary(self) -> str:
        loaded = sum(view.state == "loaded" for view in self._driver.view().models)
        return f"{self.state.value}, {loaded} model{'' if loaded == 1 else 's'} loaded"

    def _say_state(self) -> None:
        """Process title and systemd's status line follow the state, once a pass at most."""
        if not self._title_due:
            self._title_due = True
            self._loop.before_sleep(self._say_state_now)

    def _say_state_now(self) -> None:
        self._title_due = False
        summary = self._summary()
        setproctitle.setproctitle(f"llamad: supervisor [{summary}]")
        self._notifier.status(summary)

    def _note(self, note: actions.Note) -> None:
        self._events.append(Happening(self._clock.wall(), note.kind, note.model, note.text, note.numbers))
        log.info("%s%s", f"{note.model}: " if note.model else "", note.text)
        self._say_state()

    def _facts(self) -> DaemonFacts:
        process = self._front.process if self._front else None
        return DaemonFacts(
            state=self.state.value,
            started_at=self._started_at,
            started_wall=self._started_wall,
            listeners=tuple(listener.name for listener in self._listeners),
            front_pid=process.pid if process else 0,
            worker_pids=tuple(self._leases.worker_pids()) if self._leases else (),
        )

    def _log_state(self) -> None:
        view, now = self._driver.view(), self._loop.now()
        log.info("%s, %d of at most %d models resident", self.state.value, view.residents, view.models_max)
        for model in view.models:
            log.info(
                "  %s: %s, %d leases, %d waiting: %s",
                model.name,
                model.state,
                model.leases,
                model.waiting,
                model.reason,
            )
        for entry in view.queue:
            log.info("  queued: %s, %d waiters for %.1f s", entry.model, entry.waiters, now - entry.since)

    # ---- reload

    def _reload_signalled(self) -> None:
        if self.state is DaemonState.STOPPING:
            return
        if self._ready:
            self.state = DaemonState.RELOADING
            self._notifier.reloading()
        self._reloader.reload(self._reloaded)

    def _reloaded(self, outcome: Changes | LlamadError) -> None:
        if isinstance(outcome, LlamadError):
            log.error("%s", outcome.message)
            for problem in outcome.details.get("problems", []):
                log.error("%s:%s: %s", problem["file"], problem["line"], problem["message"])
        else:
            log.info(
                "reloaded: added %s, changed %s, removed %s, %d unchanged",
                list(outcome.added), list(outcome.changed), list(outcome.removed), outcome.unchanged,
            )  # fmt: skip
            if outcome.restart_needed:
                log.warning("a restart is needed for %s", ", ".join(outcome.restart_needed))
        if self.state is DaemonState.RELOADING:
            self.state = DaemonState.RUNNING
            self._notifier.ready(self._summary())
            self._say_state()

    # ---- stop

    def _stop_signalled(self) -> None:
        self._stop_signals += 1
        if self._stop_signals == 1:
            self._begin_stop()
        else:
            log.warning("stopping at once")
            self._stop_at_once()

    def _begin_stop(self) -> None:
        if self.state is DaemonState.STOPPING:
            return
        log.info("stopping: running requests have %.0f s", STOP_GRACE_S)
        self.state = DaemonState.STOPPING
        self._notifier.stopping("stopping")
        self._say_state()
        self._reloader.stop()
        if self._probe is not None:
            self._probe.stop()
        self._loop.call_later(STOP_GRACE_S, self._stop_at_once)
        self._driver.post(StopAsked(self._loop.now() + STOP_GRACE_S))
        if self._front is not None:
            self._front.stop()

    def _stop_at_once(self) -> None:
        if self._front is not None:
            self._front.stop_now()
        self._driver.post(StopAsked(self._loop.now()))
        self._loop.call_later(KILL_AFTER_S, self._kill_all)

    def _kill_all(self) -> None:
        log.warning("killing what is left")
        self._monitor.kill_all()
        if self._front is not None:
            self._front.kill()

    def _all_children_gone(self, _: actions.Finish) -> None:
        self._children_gone = True
        self._leave_when_done()

    def _leave_when_done(self) -> None:
        front_gone = self._front is None or self._front.state is FrontState.STOPPED
        if self._children_gone and front_gone and not self._reloader.scanning:
            self._loop.stop()

    def _close(self) -> None:
        for server in (self._admin, self._leases):
            if server is not None:
                server.close()
        for name in ("admin.sock", "lease.sock"):
            remove_quietly(self._path(name))
        for listener in self._listeners:
            listener.socket.close()
            if listener.owned_path:
                remove_quietly(listener.owned_path)
        self._notifier.close()
        self._loop.close()
        self._lock.release()
        if self.state is DaemonState.STOPPING:
            log.info("stopped")
