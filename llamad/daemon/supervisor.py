"""The supervisor: every part of the shell, wired together, from start to stop.

    STARTING --first scan applied, port answers--> RUNNING <--HUP--> RELOADING
    (any) --TERM, INT--> STOPPING --front gone, last child gone--> exit 0

The order of the start: lock, sockets, scan, front, readiness. The front comes after the scan, because until then every
model would be unknown to a client.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llamad.clock import Clock
from llamad.config.check import render
from llamad.config.settings import ModelSpec, Problem, Registry, Settings
from llamad.core import actions
from llamad.core.scheduler import Scheduler
from llamad.daemon import listeners as sockets
from llamad.daemon.admin import AdminServer
from llamad.daemon.admin_models import ModelRoutes
from llamad.daemon.admin_pins import PinRoutes
from llamad.daemon.admin_routes import Router
from llamad.daemon.admin_status import DaemonFacts, StatusRoutes
from llamad.daemon.admin_why import WhyRoutes
from llamad.daemon.announcer import Announcer
from llamad.daemon.clients import Clients
from llamad.daemon.decisions import Decisions
from llamad.daemon.driver import Driver
from llamad.daemon.kernel import Kernel
from llamad.daemon.leases import LeaseServer
from llamad.daemon.listeners import InstanceLock, Listener
from llamad.daemon.loop import Loop
from llamad.daemon.model_feed import ModelFeed
from llamad.daemon.monitor import Instance, Monitor, remove_quietly
from llamad.daemon.proxy import Front, FrontState
from llamad.daemon.readiness import HealthProbe
from llamad.daemon.reload import Changes, Reloader, limits
from llamad.daemon.resources import Resources
from llamad.daemon.scan import Scan, ScanResult
from llamad.daemon.spawn import SECRET_NAMES, Commands, Spawner
from llamad.daemon.statefile import warn_if_unwritable
from llamad.daemon.stopping import Stopper
from llamad.daemon.systemd import Notifier, Watchdog, watchdog_interval_s
from llamad.daemon.tallies import Tallies
from llamad.daemon.tickets import Tickets
from llamad.errors import LlamadError
from llamad.exit_status import EXIT_BAD_CONFIG, EXIT_CLEAN, EXIT_INTERNAL
from llamad.observe.log import relay, set_level
from llamad.observe.ring import LineRing
from llamad.wire.proxy import ProxySettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Given:
    """What a run of the daemon is given by its surroundings.

    `admin_socket`: one that systemd listens on already. `log_ring`: where the daemon's own log lines can be read again.
    """

    settings: Settings
    argv: list[str]
    environ: Mapping[str, str]
    clock: Clock
    kernel: Kernel
    commands: Commands
    log_ring: LineRing
    listeners: list[Listener]
    admin_socket: socket.socket | None = None


class Supervisor:
    """One run of the daemon."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._settings = settings = given.settings
        self._listeners = given.listeners
        self._started_at, self._started_wall = given.clock.monotonic(), given.clock.wall()
        self._exit_status = EXIT_CLEAN
        self._loop = Loop(given.clock)
        self._notifier = Notifier(given.environ)
        self._lock = InstanceLock(settings.runtime_dir)
        self._spawner = Spawner(self._loop, given.kernel, given.environ)
        self._driver = Driver(self._loop, Scheduler(limits(settings)))
        post = self._driver.post
        self._resources = Resources(
            loop=self._loop,
            kernel=given.kernel,
            clock=given.clock,
            environ=given.environ,
            settings=settings,
            driver=self._driver,
            instances=self._instances,
            note=self._note,
        )
        pins, memory = self._resources.pins, self._resources.memory
        self._reloader = Reloader(settings, self._start_scan, post, self._configured, pins.amended)
        specs = self._reloader.spec
        self._monitor = Monitor(self._spawner, given.commands, settings, specs, post, memory)
        log_ring = self._monitor.log_ring
        self._measurer = self._resources.measurer(
            self._spawner, given.commands, specs, log_ring, self._monitor
        )
        self._tickets = Tickets(post)
        self._decisions, self._tallies = Decisions(given.clock), Tallies()
        self._monitor.tell_counts(self._tallies.counted)
        self._clients = Clients(self._loop.now)
        self._announcer = Announcer(self._loop, self._driver, self._notifier)
        self._feed = ModelFeed(self._loop, lambda: self._driver.view().models, self._is_listed)
        self._monitor.tell(self._feed)
        self._stopper = Stopper(
            self._loop,
            post,
            self._monitor,
            self._reloader,
            front=lambda: self._front,
            on_begin=self._stop_begun,
            living=self._spawner.living,
        )
        self._leases: LeaseServer | None = None
        self._admin: AdminServer | None = None
        self._front: Front | None = None
        self._probe: HealthProbe | None = None

    def run(self) -> int:
        """Start, serve until told to stop, leave nothing behind. The exit status; raises ConfigError."""
        sockets.make_runtime_dir(self._settings.runtime_dir)
        self._lock.take()
        try:
            self._open()
            self._loop.run()
        finally:
            self._close()
        if self._stopper.gave_up:
            return EXIT_INTERNAL
        log.info("stopped")
        return self._exit_status

    # ---- start

    def _open(self) -> None:
        warn_if_unwritable(self._settings.state_dir)
        self._handle_signals()
        self._open_lease_socket()
        self._open_admin_socket()
        self._perform_actions()
        interval_s = watchdog_interval_s(self._given.environ, os.getpid())
        if interval_s is not None:
            Watchdog(self._loop, self._notifier, interval_s)
        self._announcer.refresh()
        self._reloader.reload(self._first_scan_done)

    def _handle_signals(self) -> None:
        # Inherited as ignored it would make the kernel reap our children before us.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._loop.on_signal(signal.SIGTERM, self._stopper.ask)
        self._loop.on_signal(signal.SIGINT, self._stopper.ask)
        self._loop.on_signal(signal.SIGHUP, self._reload)
        self._loop.on_signal(signal.SIGUSR1, self._announcer.log_everything)

    def _open_lease_socket(self) -> None:
        kernel = self._given.kernel
        listener = sockets.listen_at(kernel, self._path("lease.sock"), 0o600)
        self._leases = LeaseServer(
            self._loop,
            kernel,
            listener,
            self._monitor,
            post=self._driver.post,
            on_workers_changed=self._check_ready,
            clients=self._clients,
            spec_of=self._spec_of,
        )
        self._monitor.tell(self._leases)

    def _open_admin_socket(self) -> None:
        kernel, gid = self._given.kernel, sockets.operators_gid()
        owner_gid = gid if sockets.may_give_to(gid) else -1
        listener = self._given.admin_socket or sockets.listen_at(
            kernel, self._path("admin.sock"), 0o660, owner_gid
        )
        models = ModelRoutes(
            loop=self._loop,
            driver=self._driver,
            monitor=self._monitor,
            reloader=self._reloader,
            tickets=self._tickets,
            clients=self._clients,
            memory=self._resources.memory,
        )
        status = StatusRoutes(
            loop=self._loop,
            driver=self._driver,
            monitor=self._monitor,
            reloader=self._reloader,
            models=models,
            log_ring=self._given.log_ring,
            events=self._announcer.events,
            facts=self._facts,
            measurer=self._measurer,
            tallies=self._tallies,
        )
        pins = PinRoutes(models, self._resources.pins, self._tickets)
        why = WhyRoutes(self._loop, self._driver, models, self._decisions)
        # The first match counts: /models/ takes any name, so what is fixed comes before it.
        router = Router(
            [*self._feed.routes(), *models.routes(), *status.routes(), *pins.routes(), *why.routes()]
        )
        may_manage = self._clients.may_manage
        self._admin = AdminServer(self._loop, kernel, listener, router.handle, gid, may_manage)

    def _perform_actions(self) -> None:
        assert self._leases is not None
        performers: dict[type, Callable[..., None]] = {
            actions.Spawn: self._monitor.spawn,
            actions.AskExit: self._monitor.ask_exit,
            actions.Terminate: self._monitor.terminate,
            actions.Kill: self._kill,
            actions.Sleep: self._monitor.sleep,
            actions.Wake: self._monitor.wake,
            actions.Measure: self._measurer.measure,
            actions.ReadMemory: self._resources.memory.read,
            actions.QueueLease: self._leases.queue,
            actions.GrantLease: self._leases.grant,
            actions.RefuseLease: self._leases.refuse,
            actions.EndLease: self._leases.end,
            actions.AnswerTicket: self._tickets.answer,
            actions.Note: self._note,
            actions.Finish: self._stopper.children_gone,
        }
        for action, performer in performers.items():
            self._driver.performs(action, performer)

    def _instances(self) -> list[Instance]:
        return self._monitor.instances()

    def _kill(self, action: actions.Kill) -> None:
        self._monitor.kill(action)
        self._measurer.kill(action)

    def _note(self, note: actions.Note) -> None:
        self._announcer.note(note)
        self._decisions.note(note)
        self._tallies.note(note)
        self._feed.note(note)

    def _path(self, name: str) -> str:
        return os.path.join(self._settings.runtime_dir, name)

    def _start_front(self) -> None:
        self._front = Front(
            self._loop,
            self._spawner,
            self._given.commands,
            self._front_settings(),
            self._listeners,
            on_log=lambda line: relay(log, "front", line),
            on_stopped=self._stopper.leave_when_done,
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
            body_timeout_s=settings.body_timeout_s,
            websocket_idle_s=settings.websocket_idle_s,
            websocket_message_bytes=settings.websocket_message_bytes,
            ssl_key_file=settings.ssl_key_file,
            ssl_cert_file=settings.ssl_cert_file,
            log_level=settings.log_level,
        )

    def _check_ready(self) -> None:
        """A hello of every worker comes first, then an answer over the public port."""
        front, leases = self._front, self._leases
        if front is None or leases is None or front.state is not FrontState.STARTING:
            return
        if self._probe is None and len(leases.worker_pids()) >= self._settings.workers:
            tls = bool(self._settings.ssl_cert_file)
            self._probe = HealthProbe(
                self._loop, self._given.kernel, self._listeners[0], self._port_answers, tls=tls
            )

    def _port_answers(self) -> None:
        self._probe = None
        if self._front is not None:
            self._front.serving()
        self._announcer.ready(", ".join(listener.name for listener in self._listeners))

    def _facts(self) -> DaemonFacts:
        process = self._front.process if self._front else None
        return DaemonFacts(
            state=self._announcer.state.value,
            started_at=self._started_at,
            started_wall=self._started_wall,
            listeners=tuple(listener.name for listener in self._listeners),
            front_pid=process.pid if process else 0,
            worker_pids=tuple(self._leases.worker_pids()) if self._leases else (),
        )

    # ---- configuration

    def _start_scan(self, on_done: Callable[[ScanResult], None]) -> Scan:
        def done(result: ScanResult) -> None:
            on_done(result)
            self._stopper.leave_when_done()

        given = self._given
        secrets = {name: given.environ[name] for name in SECRET_NAMES if name in given.environ}
        return Scan(self._loop, self._spawner, given.commands, given.argv, done, secrets)

    def _configured(self, settings: Settings, registry: Registry) -> None:
        set_level(settings.log_level)
        if self._clients.configure(settings):
            self._policy_changed()
        names = set(registry.models)
        self._monitor.forget_logs(names)
        self._decisions.keep(names)
        self._tallies.keep(names)
        self._resources.configured(settings)
        self._feed.reloaded()
        if self._leases is not None:
            # A grant says how bodies are changed.
            self._leases.call_back()

    def _policy_changed(self) -> None:
        policy = self._clients.policy
        if policy.closed:
            log.info("the public port takes %d keys", len(policy.keys))
        elif "*" in policy.cors.origins:
            log.warning(
                "no key is set and cors-origins is *: any page in a browser that reaches the port may use it"
            )
        if self._leases is not None:
            self._leases.announce_policy()

    def _spec_of(self, name: str) -> ModelSpec | None:
        return self._reloader.spec(self._driver.resolve(name) or name)

    def _is_listed(self, name: str) -> bool:
        spec = self._reloader.spec(name)
        return spec is not None and not spec.unlisted

    def _first_scan_done(self, outcome: Changes | LlamadError) -> None:
        if self._announcer.stopping:
            return
        if isinstance(outcome, LlamadError):
            log_outcome(outcome)
            self._exit_status = EXIT_BAD_CONFIG
            self._stopper.ask()
            return
        for line in render(self._reloader.registry.problems).splitlines():
            log.warning("%s", line)
        configured = len(self._reloader.registry.models)
        log.info("%d model%s configured", configured, " is" if configured == 1 else "s are")
        self._start_front()

    def _reload(self) -> None:
        if not self._announcer.stopping:
            self._announcer.reloading()
            self._reloader.reload(self._reloaded)

    def _reloaded(self, outcome: Changes | LlamadError) -> None:
        log_outcome(outcome)
        self._announcer.reloaded()

    # ---- stop

    def _stop_begun(self) -> None:
        served = self._front is not None
        self._announcer.stop("stopping: running requests may finish" if served else "stopping")
        self._feed.close()
        if self._probe is not None:
            self._probe.stop()
        # The workers take nobody in from now on: without our copies who comes is turned away instead of left waiting.
        for listener in self._listeners:
            listener.close()

    def _close(self) -> None:
        for server in (self._admin, self._leases):
            if server is not None:
                server.close()
        remove_quietly(self._path("lease.sock"))
        if self._given.admin_socket is None:
            remove_quietly(self._path("admin.sock"))
        for listener in self._listeners:
            listener.close()
        self._notifier.close()
        self._loop.close()
        self._lock.release()


def log_outcome(outcome: Changes | LlamadError) -> None:
    """What a reload did, or every problem that kept it from doing anything."""
    if isinstance(outcome, LlamadError):
        log.error("%s", outcome.message)
        for problem in outcome.details.get("problems", []):
            log.error("%s", Problem.from_document(problem))
        return
    names = (("added", outcome.added), ("changed", outcome.changed), ("removed", outcome.removed))
    parts = [f"{verb} {', '.join(models)}" for verb, models in names if models]
    log.info("reloaded: %s", "; ".join([*parts, f"{outcome.unchanged} unchanged"]))
    if outcome.restart_needed:
        log.warning("a restart is needed for %s", ", ".join(outcome.restart_needed))
