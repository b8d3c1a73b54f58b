"""All or nothing, and who shares which scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llamad.config.settings import ModelSpec, Problem, Registry, Settings
from llamad.core.events import Event, ModelsConfigured
from llamad.daemon.reload import Changes, Reloader, bad_configuration
from llamad.daemon.scan import ScanResult
from llamad.daemon.supervisor import log_outcome
from llamad.errors import LlamadError

SETTINGS = Settings(runtime_dir="/r", state_dir="/s")


class PendingScan:
    """A scan whose result the test gives."""

    def __init__(self, on_done: Callable[[ScanResult], None]) -> None:
        self.on_done = on_done
        self.killed = False

    def kill(self) -> None:
        self.killed = True


class Bench:
    def __init__(self) -> None:
        self.scans: list[PendingScan] = []
        self.events: list[Event] = []
        self.outcomes: list[Changes | LlamadError] = []
        self.applied = 0
        self.reloader = Reloader(SETTINGS, self.start, self.events.append, self.count)

    def start(self, on_done: Callable[[ScanResult], None]) -> Any:
        self.scans.append(PendingScan(on_done))
        return self.scans[-1]

    def count(self, settings: Settings, registry: Registry) -> None:
        self.applied += 1

    def reload(self) -> None:
        self.reloader.reload(self.outcomes.append)

    def result(
        self, *models: ModelSpec, problems: tuple[Problem, ...] = (), settings: Settings = SETTINGS
    ) -> None:
        registry = Registry({model.name: model for model in models}, problems)
        self.scans[-1].on_done(ScanResult(settings, registry))


def spec(name: str, fingerprint: str = "1", **more: Any) -> ModelSpec:
    return ModelSpec(name, "/m.gguf", fingerprint=fingerprint, **more)


def started(*models: ModelSpec, problems: tuple[Problem, ...] = ()) -> Bench:
    bench = Bench()
    bench.reload()
    bench.result(*models, problems=problems)
    return bench


def test_the_first_time_is_the_start_and_later_ones_are_not() -> None:
    bench = started(spec("a"))
    bench.reload()
    bench.result(spec("a"), spec("b"))
    assert [
        (event.starting, len(event.models)) for event in bench.events if isinstance(event, ModelsConfigured)
    ] == [
        (True, 1),
        (False, 2),
    ]
    assert bench.applied == 2


def test_the_diff() -> None:
    bench = started(spec("a"), spec("b"), spec("c"), spec("d"))
    bench.reload()
    bench.result(spec("a"), spec("b", "2"), spec("d", aliases=("dd",)), spec("e"))
    assert bench.outcomes[-1] == Changes(("e",), ("b", "d"), ("c",), 1, ())


def test_options_that_need_a_restart_are_named() -> None:
    bench = started()
    bench.reload()
    bench.result(settings=Settings(runtime_dir="/r", state_dir="/s", workers=9, models_max=1))
    changes = bench.outcomes[-1]
    assert isinstance(changes, Changes)
    assert changes.restart_needed == ("workers",)


def test_a_problem_at_the_start_leaves_out_its_model_only() -> None:
    bench = started(spec("a"), problems=(Problem("/f", 3, "cannot", "b"),))
    assert isinstance(bench.outcomes[0], Changes)
    assert "a" in bench.reloader.registry.models


def test_a_fatal_problem_refuses_even_the_start() -> None:
    bench = started(problems=(Problem("/f", 3, "cannot", fatal=True),))
    refusal = bench.outcomes[0]
    assert isinstance(refusal, LlamadError)
    assert refusal.message == "cannot start: 1 problem"
    assert bench.events == []


def test_every_problem_is_logged_once_with_its_line_if_it_has_one(caplog: pytest.LogCaptureFixture) -> None:
    problems = (Problem("/f", 3, "cannot one", "x"), Problem("/g", 0, "cannot two"))
    log_outcome(bad_configuration("cannot reload", list(problems)))
    assert [record.getMessage() for record in caplog.records] == [
        "cannot reload: 2 problems",
        "/f:3: cannot one",
        "/g: cannot two",
    ]


def test_a_new_problem_changes_nothing_and_an_old_one_is_no_obstacle() -> None:
    old = Problem("/f", 3, "cannot one", "x")
    bench = started(spec("a"), problems=(old,))
    bench.reload()
    bench.result(spec("b"), problems=(old, Problem("/f", 9, "cannot two", "y")))
    refusal = bench.outcomes[-1]
    assert isinstance(refusal, LlamadError)
    assert refusal.status == 400
    assert [problem["line"] for problem in refusal.details["problems"]] == [9]
    assert list(bench.reloader.registry.models) == ["a"]
    bench.reload()
    # The same problem, some lines further down.
    bench.result(spec("b"), problems=(Problem("/f", 30, "cannot one", "x"),))
    assert list(bench.reloader.registry.models) == ["b"]


def test_requests_during_a_scan_share_the_next_one() -> None:
    """The files may have changed since the running scan read them."""
    bench = started()
    bench.outcomes.clear()
    for _ in range(3):
        bench.reload()
    assert len(bench.scans) == 2
    bench.result()
    assert len(bench.outcomes) == 1
    assert len(bench.scans) == 3
    bench.result()
    assert len(bench.outcomes) == 3
    assert not bench.reloader.scanning


def test_requests_are_bounded() -> None:
    bench = Bench()
    for _ in range(100):
        bench.reload()
    refused = [outcome for outcome in bench.outcomes if isinstance(outcome, LlamadError)]
    assert len(refused) == 100 - 1 - 64
    assert refused[0].status == 503


def test_a_scan_without_a_result_changes_nothing() -> None:
    bench = started(spec("a"))
    bench.reload()
    bench.scans[-1].on_done(ScanResult(failure="cannot read"))
    assert isinstance(bench.outcomes[-1], LlamadError)
    assert list(bench.reloader.registry.models) == ["a"]


def test_stopping_ends_the_scan_and_answers_everybody() -> None:
    bench = Bench()
    bench.reload()
    bench.reload()
    bench.reloader.stop()
    assert bench.scans[0].killed
    bench.scans[0].on_done(ScanResult(failure="cannot"))
    assert len(bench.outcomes) == 2
    assert all(isinstance(outcome, LlamadError) for outcome in bench.outcomes)
    assert not bench.reloader.scanning
