"""Admin routes about the daemon itself: status, processes, logs, decisions, version."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psutil  # type: ignore[import-untyped]

from llamad import __version__
from llamad.daemon import documents, metrics
from llamad.daemon.admin import Exchange
from llamad.daemon.admin_models import ModelRoutes
from llamad.daemon.admin_routes import Route
from llamad.daemon.driver import Driver
from llamad.daemon.following import answer_with_ring
from llamad.daemon.loop import Loop
from llamad.daemon.measuring import Measurer, Measuring
from llamad.daemon.monitor import Instance, Monitor
from llamad.daemon.reload import Reloader
from llamad.daemon.tallies import Tallies
from llamad.errors import NotFoundError
from llamad.observe.events import EventRing, to_document
from llamad.observe.ring import Entry, LineRing
from llamad.wire.admin import json_bytes


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """What only the supervisor knows of the daemon at this moment."""

    state: str
    started_at: float
    started_wall: float
    listeners: tuple[str, ...]
    front_pid: int
    worker_pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One row of `/ps` before the kernel is asked about it."""

    pid: int
    role: str
    state: str
    model: str = ""
    child: int = 0
    address: str = ""
    stats: Any = None


class StatusRoutes:
    """`facts` is asked at each request."""

    def __init__(
        self,
        *,
        loop: Loop,
        driver: Driver,
        monitor: Monitor,
        reloader: Reloader,
        models: ModelRoutes,
        log_ring: LineRing,
        events: EventRing,
        facts: Callable[[], DaemonFacts],
        measurer: Measurer,
        tallies: Tallies,
    ) -> None:
        self._loop = loop
        self._driver = driver
        self._monitor = monitor
        self._reloader = reloader
        self._models = models
        self._log_ring = log_ring
        self._events = events
        self._facts = facts
        self._measurer = measurer
        self._tallies = tallies

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/status", self.status),
            Route("GET", "/health", lambda exchange, _: exchange.answer({"status": "ok"})),
            Route("GET", "/ps", self.processes),
            Route("GET", "/metrics", self.metrics),
            Route("GET", "/logs", self.own_log),
            Route("GET", "/logs/", self.model_log),
            Route("GET", "/events", self.events),
            Route(
                "GET", "/props", lambda exchange, _: exchange.answer(documents.props_document(self._settings))
            ),
            Route("GET", "/version", lambda exchange, _: exchange.answer(documents.version_document())),
        ]

    @property
    def _settings(self) -> Any:
        return self._reloader.settings

    def status(self, exchange: Exchange, _: str) -> None:
        now, facts, settings = self._loop.now(), self._facts(), self._settings
        view = self._driver.view()
        exchange.answer(
            {
                "daemon": {
                    "version": __version__,
                    "pid": os.getpid(),
                    "state": facts.state,
                    "uptime_s": round(now - facts.started_at, 3),
                    "started_at": facts.started_wall,
                    "runtime_dir": settings.runtime_dir,
                    "config_file": settings.config_file,
                    "listeners": list(facts.listeners),
                    "tls": bool(settings.ssl_cert_file),
                    "workers": settings.workers,
                    "workers_ready": len(facts.worker_pids),
                },
                "limits": documents.limits_document(settings),
                "devices": [documents.device_document(device, view.read_at, now) for device in view.devices],
                "queue": [documents.queue_document(entry, now) for entry in view.queue],
                "models": self._models.documents(),
                "problems": [
                    documents.problem_document(problem) for problem in self._reloader.registry.problems
                ],
            }
        )

    def processes(self, exchange: Exchange, _: str) -> None:
        wall = self._loop.clock.wall()
        rows = (_process_document(process, wall) for process in self._process_facts())
        exchange.answer({"processes": [row for row in rows if row is not None]})

    def metrics(self, exchange: Exchange, _: str) -> None:
        uptime_s = self._loop.now() - self._facts().started_at
        instances = tuple(self._monitor.instances())
        exchange.begin(metrics.CONTENT_TYPE)
        exchange.write(
            metrics.page(metrics.Snapshot(self._driver.view(), instances, self._tallies, uptime_s))
        )
        exchange.end()

    def own_log(self, exchange: Exchange, _: str) -> None:
        answer_with_ring(exchange, self._log_ring, "text/plain; charset=utf-8", _line_bytes)

    def model_log(self, exchange: Exchange, name: str) -> None:
        known = self._driver.resolve(name)
        if known is None:
            raise NotFoundError(f"cannot find model {name!r}", kind="model-not-found")
        answer_with_ring(exchange, self._monitor.log_ring(known), "text/plain; charset=utf-8", _line_bytes)

    def events(self, exchange: Exchange, _: str) -> None:
        answer_with_ring(
            exchange, self._events, "application/x-ndjson", lambda entry: json_bytes(to_document(entry))
        )

    def _process_facts(self) -> Iterable[ProcessFacts]:
        facts = self._facts()
        yield ProcessFacts(os.getpid(), "supervisor", facts.state)
        if facts.front_pid:
            yield ProcessFacts(facts.front_pid, "proxy", "arbiter")
        for pid in facts.worker_pids:
            yield ProcessFacts(pid, "proxy", "worker")
        for instance in self._monitor.instances():
            yield _instance_facts(instance)
        for measuring in self._measurer.running():
            yield _measure_facts(measuring)


def _instance_facts(instance: Instance) -> ProcessFacts:
    return ProcessFacts(
        pid=instance.pid,
        role="instance",
        state=instance.link.state.value,
        model=instance.spec.name,
        child=instance.child,
        address=instance.address,
        stats=instance.stats,
    )


def _measure_facts(measuring: Measuring) -> ProcessFacts:
    return ProcessFacts(
        pid=measuring.process.pid if measuring.process else 0,
        role="measure",
        state=measuring.link.state.value,
        model=measuring.spec.name,
        child=measuring.child,
    )


def _process_document(process: ProcessFacts, wall: float) -> dict[str, Any] | None:
    """None for a process that is gone by now. Reads /proc, which does not wait."""
    try:
        handle = psutil.Process(process.pid)
        with handle.oneshot():
            memory, times, created = handle.memory_info(), handle.cpu_times(), handle.create_time()
    except psutil.Error:
        return None
    return {
        "pid": process.pid,
        "role": process.role,
        "model": process.model or None,
        "child": process.child or None,
        "state": process.state,
        "rss_bytes": memory.rss,
        "cpu_s": round(times.user + times.system, 2),
        "uptime_s": round(max(0.0, wall - created), 1),
        "address": process.address or None,
        "stats": dict(process.stats or {}),
    }


def _line_bytes(entry: Entry[str]) -> bytes:
    return entry.value.encode("utf-8", "replace") + b"\n"
