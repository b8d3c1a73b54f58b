"""The registry, and how it changes: all at once from a scan's result, or not at all.

At the start a problem leaves out the model that it concerns. On a reload a *new* problem leaves everything as it is: the
operator has just broken something, and what runs must not suffer from it. Problems that were there before do not count,
or a broken model would block every later change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from llamad.config.diff import diff_registries, diff_settings
from llamad.config.settings import ModelSpec, Problem, Registry, Settings
from llamad.core.events import Event, Limits, ModelEntry, ModelsConfigured
from llamad.daemon.scan import Scan, ScanResult
from llamad.errors import ConfigError, LlamadError, UnavailableError

log = logging.getLogger(__name__)

REQUESTS_WAITING_MAX = 64


@dataclass(frozen=True, slots=True)
class Changes:
    """What a reload did, by model name; `restart_needed` names options whose change has no effect before a restart."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    restart_needed: tuple[str, ...] = ()


Reloaded = Callable[[Changes | LlamadError], None]


class Reloader:
    """Owner of the current settings and registry. One scan at a time; requests during a scan share the one after it.

    `amend` may change what the scheduler is told of models: what operators have ordered stands over the configuration.
    """

    def __init__(
        self,
        settings: Settings,
        start_scan: Callable[[Callable[[ScanResult], None]], Scan],
        post: Callable[[Event], None],
        on_applied: Callable[[Settings, Registry], None],
        amend: Callable[[tuple[ModelEntry, ...]], tuple[ModelEntry, ...]] = tuple,
    ) -> None:
        self.settings = settings
        self.registry = Registry()
        self._start_scan = start_scan
        self._post = post
        self._on_applied = on_applied
        self._amend = amend
        self._scan: Scan | None = None
        self._served: list[Reloaded] = []
        self._waiting: list[Reloaded] = []
        self._configured = False
        self._stopped = False

    @property
    def scanning(self) -> bool:
        return self._scan is not None

    def spec(self, name: str) -> ModelSpec | None:
        return self.registry.models.get(name)

    def reload(self, on_done: Reloaded) -> None:
        """Read the configuration again. Raises nothing: `on_done` gets what changed, or the error."""
        if len(self._waiting) >= REQUESTS_WAITING_MAX:
            on_done(LlamadError(f"cannot reload: {REQUESTS_WAITING_MAX} reloads wait already", status=503))
            return
        self._waiting.append(on_done)
        self._next()

    def stop(self) -> None:
        """No more scans; whoever waits for one gets an error."""
        self._stopped = True
        if self._scan is not None:
            self._scan.kill()

    def _next(self) -> None:
        if self._scan is not None or not self._waiting:
            return
        self._served, self._waiting = self._waiting, []
        try:
            if self._stopped:
                raise UnavailableError("llamad is stopping")
            self._scan = self._start_scan(self._scanned)
        except (OSError, LlamadError) as error:
            self._finish(LlamadError(f"cannot read the configuration: {error}", kind="scan-failed"))

    def _scanned(self, result: ScanResult) -> None:
        self._scan = None
        self._finish(self._apply(result))
        self._next()

    def _finish(self, outcome: Changes | LlamadError) -> None:
        served, self._served = self._served, []
        for on_done in served:
            on_done(outcome)

    def _apply(self, result: ScanResult) -> Changes | LlamadError:
        if result.settings is None:
            return LlamadError(result.failure, kind="scan-failed")
        starting = not self._configured
        refused = [problem for problem in result.registry.problems if problem.fatal or not starting]
        fresh = new_problems(self.registry.problems, tuple(refused))
        if fresh:
            doing = "cannot start" if starting else "cannot reload, nothing has changed"
            return bad_configuration(doing, fresh)
        changes = changes_between(self, result.settings, result.registry)
        self.settings, self.registry = result.settings, result.registry
        self._configured = True
        entries = self._amend(tuple(model_entry(spec) for spec in result.registry.models.values()))
        self._post(ModelsConfigured(entries, limits(result.settings), starting=starting))
        self._on_applied(self.settings, self.registry)
        return changes


def new_problems(before: tuple[Problem, ...], after: tuple[Problem, ...]) -> list[Problem]:
    """Problems that were not there before, wherever in their file they stand now."""
    known = {(problem.file, problem.message, problem.model) for problem in before}
    return [problem for problem in after if (problem.file, problem.message, problem.model) not in known]


def bad_configuration(doing: str, problems: list[Problem]) -> ConfigError:
    """One error for all of them, with the list in its details: the message says only how many there are."""
    documents = [
        {"file": problem.file, "line": problem.line, "message": problem.message, "model": problem.model}
        for problem in problems
    ]
    error = ConfigError(f"{doing}: {len(problems)} problem{'' if len(problems) == 1 else 's'}")
    error.status, error.details = 400, {"problems": documents}
    return error


def changes_between(before: Reloader, settings: Settings, registry: Registry) -> Changes:
    """`changed` has models whose process is replaced and those of which only labels differ, as both now are different."""
    diff = diff_registries(before.registry, registry)
    return Changes(
        added=diff.added,
        changed=tuple(sorted({*diff.changed, *diff.relabelled})),
        removed=diff.removed,
        unchanged=len(set(diff.unchanged) - set(diff.relabelled)),
        restart_needed=diff_settings(before.settings, settings).restart_needed,
    )


def model_entry(spec: ModelSpec) -> ModelEntry:
    """What the scheduler has to know of a model."""
    return ModelEntry(
        name=spec.name,
        aliases=spec.other_names,
        fingerprint=spec.fingerprint,
        pinned=spec.pinned,
        load_on_startup=spec.load_on_startup,
        stop_timeout_s=spec.stop_timeout_s,
        priority=spec.priority,
        sleep_idle_s=spec.sleep_idle_s,
        unload_idle_s=spec.unload_idle_s,
        concurrency_limit=spec.concurrency_limit,
    )


def limits(settings: Settings) -> Limits:
    return Limits(
        models_max=settings.models_max,
        autoload=settings.models_autoload,
        drain_after_s=settings.drain_after_s,
        queue_timeout_s=settings.queue_timeout_s,
        max_queued=settings.max_queued,
        load_timeout_s=settings.load_timeout_s,
        margin_bytes=settings.models_memory_margin_bytes,
    )
