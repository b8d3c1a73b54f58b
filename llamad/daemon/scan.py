"""A scan child: configuration and model directories read outside the daemon, because disks may be slow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from llamad.config.settings import ModelSpec, Problem, Registry, Settings
from llamad.daemon.kernel import Exit
from llamad.daemon.loop import Loop
from llamad.daemon.spawn import Commands, Spawner
from llamad.errors import ProtocolError
from llamad.wire.child import ChildLink, Item, Start, State, encode, parse_report

log = logging.getLogger(__name__)

SCAN_S_MAX = 60.0
ITEMS_MAX = 20_000
LOG_LINES_KEPT = 5


@dataclass(slots=True)
class ScanResult:
    """What a scan found. `failure` says why there is none."""

    settings: Settings | None = None
    registry: Registry = field(default_factory=Registry)
    failure: str = ""


class Scan:
    """One scan from spawn to exit; `on_done` is called once. `secrets`: environment that must not be in one."""

    def __init__(
        self,
        loop: Loop,
        spawner: Spawner,
        commands: Commands,
        argv: list[str],
        on_done: Callable[[ScanResult], None],
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self._on_done = on_done
        self._link = ChildLink()
        self._settings: Settings | None = None
        self._models: dict[str, ModelSpec] = {}
        self._problems: list[Problem] = []
        self._items = 0
        self._scanned = False
        self._failure = ""
        self._log: list[str] = []
        self._timer = loop.call_later(SCAN_S_MAX, self._took_too_long)
        try:
            self._process = spawner.spawn(
                commands.scan,
                "scan",
                on_report=self._report_line,
                on_log=self._log_line,
                on_exit=self._exited,
            )
        except OSError:
            self._timer.cancel()
            raise
        try:
            self._process.send(encode(Start("scan", {"argv": argv, "environ": dict(secrets or {})})))
        except ProtocolError as error:
            self._give_up(error.message)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def _took_too_long(self) -> None:
        self._give_up(f"cannot read the configuration: no result after {SCAN_S_MAX:.0f} s")

    def _give_up(self, failure: str) -> None:
        self._failure = self._failure or failure
        self._process.kill()

    def _log_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        self._log = [*self._log[1 - LOG_LINES_KEPT :], text]
        log.debug("scan: %s", text)

    def _report_line(self, line: bytes) -> None:
        try:
            report = parse_report(line)
            if report is None:
                self._log_line(line)
                return
            self._link.receive(report)
            if isinstance(report, Item):
                self._take(report)
            elif isinstance(report, State):
                self._scanned = self._scanned or report.state == "scanned"
                if report.state == "failed":
                    self._failure = str(report.payload.get("message") or "cannot read the configuration")
        except (ProtocolError, TypeError, KeyError) as error:
            self._give_up(f"cannot read the configuration: the scan said something odd ({error})")

    def _take(self, item: Item) -> None:
        self._items += 1
        if self._items > ITEMS_MAX:
            raise ProtocolError(f"cannot take more than {ITEMS_MAX} models and problems")
        match item.body.get("item"):
            case "settings":
                self._settings = Settings.from_document(item.body["settings"])
            case "model":
                spec = ModelSpec.from_document(item.body["model"])
                self._models[spec.name] = spec
            case "problem":
                self._problems.append(Problem.from_document(item.body["problem"]))

    def _exited(self, ended: Exit) -> None:
        self._timer.cancel()
        if not self._scanned or self._settings is None:
            how = f"signal {ended.signal}" if ended.signal is not None else f"exit status {ended.exit_code}"
            said = f": {self._log[-1]}" if self._log else ""
            failure = self._failure or f"cannot read the configuration: the scan ended with {how}{said}"
            self._on_done(ScanResult(failure=failure))
            return
        self._on_done(ScanResult(self._settings, Registry(self._models, tuple(self._problems))))
