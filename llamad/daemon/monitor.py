"""Instances by child number: carries out Spawn, Sleep, Wake, AskExit, Terminate and Kill, and turns reports into events.

The number is the identity. A process that died still answers to its number until the scheduler has heard of its end;
after that nothing here knows it any more.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from llamad.config.settings import ModelSpec, Settings
from llamad.core.actions import AskExit, Kill, Sleep, Spawn, Terminate, Wake
from llamad.core.events import (
    Amounts,
    ChildExited,
    ChildFailed,
    ChildNotSpawned,
    ChildProgressed,
    ChildReady,
    ChildSlept,
    Event,
    Placement,
)
from llamad.daemon.bodies import DeviceNames, start_body, translated
from llamad.daemon.kernel import Exit as ProcessExit
from llamad.daemon.process import ChildProcess
from llamad.daemon.reports import checked_address, device_totals, load_progress, slots
from llamad.daemon.spawn import Commands, Spawner
from llamad.errors import LlamadError, ProtocolError
from llamad.observe.ring import LineRing
from llamad.wire import child as wire
from llamad.wire.child import (
    ChildLink,
    Conversation,
    Exit,
    LinkState,
    Start,
    State,
    Stats,
    Stop,
    encode,
    parse_report,
)

log = logging.getLogger(__name__)

TAIL_LINES = 20
TAIL_CHARS = 2000
TOKEN_BYTES = 32


@dataclass(slots=True)
class Instance:
    """One instance process and what it told of itself."""

    child: int
    spec: ModelSpec
    token: str
    socket_path: str
    placement: Placement | None = None
    """Where it was put, if there was a choice, by the names that it uses."""
    process: ChildProcess | None = None
    link: ChildLink = field(default_factory=ChildLink)
    log_began_at: int = 0
    """The number of the model's last log line from before it."""
    address: str = ""
    ready_payload: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0


class Watcher(Protocol):
    """Who else hears what instances say."""

    def progressed(self, names: Collection[str], value: float) -> None: ...

    def reported(self, child: int, report: Conversation) -> None: ...

    def gone(self, child: int, how: str) -> None: ...


class Monitor:
    """Starts, watches and ends instances. `specs` looks a model up in the current registry.

    `devices` translates between a model's names of devices and those of the books.
    """

    def __init__(
        self,
        spawner: Spawner,
        commands: Commands,
        settings: Settings,
        specs: Callable[[str], ModelSpec | None],
        post: Callable[[Event], None],
        devices: DeviceNames,
    ) -> None:
        self._spawner = spawner
        self._commands = commands
        self._settings = settings
        self._specs = specs
        self._post = post
        self._devices = devices
        self._instances: dict[int, Instance] = {}
        self._logs: dict[str, LineRing] = {}
        self._watchers: list[Watcher] = []
        self._ready: list[Callable[[Instance], None]] = []
        self._counters: list[Callable[[Instance, Mapping[str, Any]], None]] = []

    def tell(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def tell_counts(self, counter: Callable[[Instance, Mapping[str, Any]], None]) -> None:
        """`counter` gets what an instance counts; what it said before is still in the instance."""
        self._counters.append(counter)

    def tell_ready(self, listener: Callable[[Instance], None]) -> None:
        """`listener` gets each instance that has loaded, after the scheduler."""
        self._ready.append(listener)

    # ---- what others may know

    def reach(self, child: int) -> tuple[str, str]:
        """Where an instance listens and the token it wants; empty if there is none."""
        instance = self._instances.get(child)
        return (instance.address, instance.token) if instance else ("", "")

    def instance(self, child: int) -> Instance | None:
        return self._instances.get(child)

    def instances(self) -> list[Instance]:
        return list(self._instances.values())

    def log_ring(self, model: str) -> LineRing:
        """The model's log, across all processes it has had."""
        return self._logs.setdefault(model, LineRing())

    def forget_logs(self, keep: set[str]) -> None:
        """Drop the rings of models that are configured no more and run no more."""
        running = {instance.spec.name for instance in self._instances.values()}
        for name in [name for name in self._logs if name not in keep | running]:
            del self._logs[name]

    # ---- actions

    def spawn(self, action: Spawn) -> None:
        spec = self._specs(action.model)
        try:
            self._start(action, _runnable(spec))
        except (OSError, LlamadError) as error:
            message = f"cannot start an instance of {action.model!r}: {error}"
            log.warning("%s", message)
            self._post(ChildNotSpawned(action.child, message))

    def ask_exit(self, action: AskExit) -> None:
        self._command(action.child, Exit())

    def sleep(self, action: Sleep) -> None:
        self._command(action.child, wire.Sleep())

    def wake(self, action: Wake) -> None:
        self._command(action.child, wire.Wake())

    def terminate(self, action: Terminate) -> None:
        instance = self._instances.get(action.child)
        if instance is not None and instance.process is not None:
            log.warning("%s (pid %d) did not leave when asked: SIGTERM", instance.spec.name, instance.pid)
            instance.process.terminate()

    def kill(self, action: Kill) -> None:
        self._kill(self._instances.get(action.child))

    def stop_conversation(self, child: int, ticket: int) -> None:
        self._command(child, Stop(ticket))

    def kill_all(self) -> None:
        for instance in self._instances.values():
            self._kill(instance)

    # ---- the life of one

    def _start(self, action: Spawn, spec: ModelSpec) -> None:
        child = action.child
        instance = Instance(child, spec, secrets.token_urlsafe(TOKEN_BYTES), self._socket_path(child))
        instance.log_began_at = self.log_ring(spec.name).last_seq
        instance.process = self._spawner.spawn(
            self._commands.instance,
            "instance",
            environment=spec.env,
            on_report=lambda line: self._report_line(instance, line),
            on_log=lambda line: self._log_line(instance, line),
            on_exit=lambda ended: self._exited(instance, ended),
        )
        self._instances[child] = instance
        log.info("%s: started as child %d, pid %d", spec.name, child, instance.pid)
        promised = {
            name: self._devices.from_books(amounts, spec.env)
            for name, amounts in (("reserved", action.reserved), ("maximum", action.maximum))
            if amounts is not None
        }
        if action.placement is not None:
            instance.placement = translated(
                action.placement, lambda amounts: self._devices.from_books(amounts, spec.env)
            )
        body = start_body(spec, instance.token, instance.socket_path, promised, instance.placement)
        self._send(instance, encode(Start("instance", body)))

    def _socket_path(self, child: int) -> str:
        if self._settings.instance_transport != "unix":
            return ""
        return os.path.join(self._settings.runtime_dir, f"instance-{child}.sock")

    def _command(self, child: int, command: wire.Command) -> None:
        """Harmless for a child that is gone."""
        instance = self._instances.get(child)
        if instance is not None and instance.process is not None:
            self._send(instance, encode(command))

    def _send(self, instance: Instance, data: bytes) -> None:
        assert instance.process is not None
        try:
            instance.process.send(data)
        except ProtocolError as error:
            self._break_off(instance, error)

    def _kill(self, instance: Instance | None) -> None:
        if instance is not None and instance.process is not None:
            instance.process.kill()

    def _log_line(self, instance: Instance, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        self.log_ring(instance.spec.name).append(text)
        log.debug("%s[%d]: %s", instance.spec.name, instance.pid, text)

    def _report_line(self, instance: Instance, line: bytes) -> None:
        try:
            report = parse_report(line)
            if report is None:
                self._log_line(instance, line)
                return
            instance.link.receive(report)
            if isinstance(report, State):
                self._state_reported(instance, report)
            elif isinstance(report, Stats):
                for counter in self._counters:
                    counter(instance, report.body)
                instance.stats = report.body
            elif isinstance(report, Conversation):
                for watcher in self._watchers:
                    watcher.reported(instance.child, report)
        except ProtocolError as error:
            self._break_off(instance, error)

    def _state_reported(self, instance: Instance, report: State) -> None:
        match report.state:
            case "loading":
                value = load_progress(report.payload)
                self._post(ChildProgressed(instance.child, value))
                for watcher in self._watchers:
                    watcher.progressed((instance.spec.name, *instance.spec.aliases), value)
            case "ready":
                instance.address = checked_address(report.payload, instance.socket_path)
                instance.ready_payload = report.payload
                self._post(ChildReady(instance.child, self._effective(instance, report), slots(report)))
                for listener in self._ready:
                    listener(instance)
            case "sleeping":
                self._post(ChildSlept(instance.child, self._effective(instance, report)))
            case "failed":
                kind = str(report.payload.get("kind") or "load-failed")
                message = str(report.payload.get("message") or f"cannot run {instance.spec.name!r}")
                self._post(ChildFailed(instance.child, kind, message))

    def _effective(self, instance: Instance, report: State) -> Amounts | None:
        """What the child says it holds, by the books' names. None: it does not say."""
        held = device_totals(report.payload.get("bytes"))
        return self._devices.to_books(held, instance.spec.env) if held is not None else None

    def _break_off(self, instance: Instance, error: ProtocolError) -> None:
        """A child that breaks the protocol is ended: nothing it says can be believed."""
        log.error("%s (pid %d): %s", instance.spec.name, instance.pid, error)
        if instance.link.state is not LinkState.EXITING:
            instance.link.state = LinkState.EXITING
            self._post(ChildFailed(instance.child, "protocol", str(error)))
        self._kill(instance)

    def _exited(self, instance: Instance, ended: ProcessExit) -> None:
        name = instance.spec.name
        how = f"signal {ended.signal}" if ended.signal is not None else f"exit status {ended.exit_code}"
        log.info("%s: child %d, pid %d ended with %s", name, instance.child, instance.pid, how)
        if instance.socket_path:
            remove_quietly(instance.socket_path)
        if ended.exit_code == wire.EXIT_OUT_OF_MEMORY and instance.link.state is not LinkState.EXITING:
            message = f"cannot run {name!r}: its process ran out of memory, and could not even say so"
            self._post(ChildFailed(instance.child, "out-of-memory", message))
        tail = self.log_ring(name).tail(TAIL_LINES, TAIL_CHARS, instance.log_began_at)
        self._post(ChildExited(instance.child, ended.exit_code, ended.signal, tail))
        self._instances.pop(instance.child, None)
        for watcher in self._watchers:
            watcher.gone(instance.child, how)


def _runnable(spec: ModelSpec | None) -> ModelSpec:
    """Raises LlamadError for a model that cannot have an instance."""
    if spec is None:
        raise LlamadError("the model is not configured any more")
    if spec.engine != "llamad":
        raise LlamadError(f"engine {spec.engine!r} is not supported by this version")
    return spec


def remove_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        log.debug("cannot remove %s: %s", path, error)
