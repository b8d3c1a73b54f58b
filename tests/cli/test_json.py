"""`--json` prints the API's documents as they are; streams are one object a line."""

from __future__ import annotations

import json

import pytest

from llamad.errors import RequestError
from tests.cli.conftest import Run
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.test_tables import EVENTS, PROCESSES


def test_documents_are_the_apis(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.processes = PROCESSES
    expected = {
        ("status",): daemon.status(),
        ("list",): {"object": "list", "data": [model.document() for model in daemon.models.values()]},
        ("show", "ggml-org/gemma-3:Q4_K_M"): daemon.models["ggml-org/gemma-3:Q4_K_M"].document(),
        ("ps",): {"processes": PROCESSES},
        ("version",): {"version": "0.1.0", "python": "3.11.2", "platform": "Linux-6.1"},
        ("reload",): daemon.reload_answer,
    }
    for args, document in expected.items():
        result = llamactl(*args, "--json")
        assert (result.returncode, result.stderr) == (0, "")
        assert json.loads(result.stdout) == document


def lines(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines()]


def test_streams_are_one_object_a_line(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.events = list(EVENTS)
    assert lines(llamactl("events", "--json").stdout) == EVENTS
    assert lines(llamactl("events", "--json", "-n", "1").stdout) == EVENTS[-1:]
    assert lines(llamactl("logs", "--json").stdout) == [
        {"model": None, "line": "first line"},
        {"model": None, "line": "second line"},
    ]
    assert lines(llamactl("logs", "smollm2", "-n", "1", "--json").stdout) == [
        {"model": "smollm2", "line": "ready"}
    ]


def test_each_change_is_a_line_in_the_order_of_the_arguments(daemon: FakeDaemon, llamactl: Run) -> None:
    result = llamactl("load", "broken", "smollm2", "--json")
    failed, loaded = lines(result.stdout)
    assert failed["error"]["kind"] == "load-failed"  # type: ignore[index]
    status = daemon.models["smollm2"].document()["status"]
    assert loaded == {"success": True, "status": status, "already": False}


@pytest.mark.parametrize("args", [("show", "nope"), ("load", "nope"), ("logs", "nope")])
def test_an_error_is_a_document_too(llamactl: Run, args: tuple[str, ...]) -> None:
    result = llamactl(*args, "--json")
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["kind"], error["type"]) == (404, "model-not-found", "not_found_error")
    assert result.stderr.startswith("llamactl: cannot find model 'nope'")


def test_problems_of_a_reload_are_in_the_document(daemon: FakeDaemon, llamactl: Run) -> None:
    problems = [{"file": "m.ini", "line": 3, "message": "cannot read 'x'", "model": ""}]
    daemon.reload_answer = RequestError(
        "cannot reload: 1 problem", kind="bad-config", details={"problems": problems}
    )
    result = llamactl("reload", "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["error"]["problems"] == problems
