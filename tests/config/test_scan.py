"""The scan role, in this process and as the child it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llamad.child import scan
from llamad.config.load import UsageError, load
from llamad.config.settings import Loaded, ModelSpec, Problem, Registry, Settings
from llamad.errors import LlamadError
from llamad.wire.child import ChildLink, Item, LinkState, Report, Start, State, encode, parse_report
from tests.config.gguf_kit import write_model

BOUND_S = 30


class Heard:
    """A parent's end: every report, checked against the link's machine, and what they come to."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.link = ChildLink()

    def send(self, report: Report) -> None:
        heard = parse_report(encode(report))
        assert heard == report
        self.link.receive(report)
        self.reports.append(report)

    def loaded(self) -> Loaded:
        bodies = [report.body for report in self.reports if isinstance(report, Item)]
        [settings] = [
            Settings.from_document(body["settings"]) for body in bodies if body["item"] == "settings"
        ]
        models = [ModelSpec.from_document(body["model"]) for body in bodies if body["item"] == "model"]
        problems = [Problem.from_document(body["problem"]) for body in bodies if body["item"] == "problem"]
        return Loaded(settings, Registry({spec.name: spec for spec in models}, tuple(problems)))


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    write_model(tmp_path / "models" / "good.gguf")
    (tmp_path / "models" / "bad.gguf").touch()
    presets = tmp_path / "models.ini"
    presets.write_text("[good]\nc = 512\nalias = x\n[none]\nc = 1\n")
    # Long settled, so that no test waits for it.
    os.utime(presets, (1, 1))
    return [
        "--config",
        "/dev/null",
        "--models-dir",
        str(tmp_path / "models"),
        "--models-preset",
        str(presets),
    ]


def test_a_scan_says_what_load_says(argv: list[str]) -> None:
    heard = Heard()
    assert scan.run(heard, {"argv": argv}) == 0
    assert heard.loaded() == load(argv)
    assert [spec.name for spec in heard.loaded().registry.models.values()] == ["good"]
    assert len(heard.loaded().registry.problems) == 2
    assert heard.reports[-1] == State("scanned")
    assert heard.link.state is LinkState.EXITING


@pytest.mark.parametrize("body", [{}, {"argv": "x"}, {"argv": [1]}])
def test_a_broken_start_document(body: dict[str, object]) -> None:
    heard = Heard()
    with pytest.raises(LlamadError, match="cannot scan"):
        scan.run(heard, body)
    assert heard.reports == []


def test_a_broken_command_line() -> None:
    with pytest.raises(UsageError):
        scan.run(Heard(), {"argv": ["--prt"]})


def test_a_model_that_fits_into_no_line_is_a_problem(
    argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "LINE_BYTES_MAX", 400)
    heard = Heard()
    scan.run(heard, {"argv": argv})
    registry = heard.loaded().registry
    assert registry.models == {}
    assert [problem.model for problem in registry.problems] == ["good", "none", "bad"]


def test_as_a_child(argv: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "llamad", "child"],
        input=encode(Start("scan", {"argv": argv})),
        capture_output=True,
        timeout=BOUND_S,
        env={**os.environ, "LLAMA_ARG_MODELS_MAX": "3"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    heard = Heard()
    for line in done.stdout.splitlines():
        report = parse_report(line)
        assert report is not None, f"not a report: {line!r}"
        heard.send(report)
    assert heard.loaded().settings.models_max == 3
    assert list(heard.loaded().registry.models) == ["good"]


def test_a_name_that_is_not_utf8_reaches_the_parent_as_a_problem(argv: list[str], tmp_path: Path) -> None:
    """A line of JSON cannot carry it as it is; the scan, and with it the start, must not fail for it."""
    write_model(Path(os.fsdecode(os.fsencode(tmp_path) + b"/models/odd\xff.gguf")))
    heard = Heard()
    assert scan.run(heard, {"argv": argv}) == 0
    assert any("odd\\udcff" in problem.file for problem in heard.loaded().registry.problems)
    assert "good" in heard.loaded().registry.models
