"""why, plan, pin, unpin, hold: as people and programs read them."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run, golden
from tests.cli.fake_daemon import FakeDaemon

GIB = 1 << 30
PLAN = {
    "outcome": "evicts",
    "message": "unloads 'smollm2', then loads",
    "need": {"processes": 1, "host": GIB // 2, "CUDA0": 8 * GIB},
    "available": {"processes": 1, "host": 20 * GIB, "CUDA0": 6 * GIB},
    "short": {"CUDA0": 2 * GIB},
    "evictions": ["smollm2"],
    "drains": [],
    "drain_after_s": None,
    "leaving": [],
    "position": 1,
}
WHY = {
    "state": "unloaded",
    "reason": "waiting for room",
    "since_s": 61.0,
    "decisions": [
        {
            "time": 1764567893.0,
            "ago_s": 3.0,
            "kind": "measured",
            "text": "its need is known",
            "minimum": {"CUDA0": 8 * GIB},
        },
        {
            "time": 1764567890.5,
            "ago_s": 5.5,
            "kind": "measure",
            "text": "measuring what it needs",
            "child": 4,
        },
    ],
    "failure": {"kind": "load-failed", "message": "cannot load it: no", "count": 2, "retry_in_s": 1.5},
    "memory": None,
    "need": None,
    "queue": {"model": "broken", "waiters": 2, "waited_s": 3.25, "draining": [], "position": 1, "plan": PLAN},
}


@pytest.fixture
def explained(daemon: FakeDaemon) -> FakeDaemon:
    daemon.why["broken"], daemon.plans["broken"] = WHY, PLAN
    return daemon


@pytest.mark.parametrize("command", ["why", "plan"])
def test_screens_are_stable(explained: FakeDaemon, llamactl: Run, command: str) -> None:
    result = llamactl(command, "broken")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == golden(f"{command}.txt")


@pytest.mark.parametrize(("command", "document"), [("why", WHY), ("plan", PLAN)])
def test_json_is_the_daemons_own(
    explained: FakeDaemon, llamactl: Run, command: str, document: object
) -> None:
    answer = json.loads(llamactl(command, "broken", "--json").stdout)
    assert answer.pop("model") == "broken"
    assert answer == document


@pytest.mark.parametrize("command", [["why"], ["plan"], ["pin"], ["unpin"], ["hold", "--for", "1m"]])
def test_an_unknown_model_is_exit_code_4_with_a_suggestion(
    daemon: FakeDaemon, llamactl: Run, command: list[str]
) -> None:
    result = llamactl(*command, "smollm3")
    assert result.returncode == 4
    assert "did you mean 'smollm2'" in result.stderr


@pytest.mark.parametrize(
    ("args", "path", "words", "body"),
    [
        (["pin", "smollm2", "broken"], "/models/pin", "pinned", {}),
        (["unpin", "smollm2"], "/models/unpin", "no longer pinned", {}),
        (["hold", "smollm2", "--for", "10m"], "/models/hold", "held for 10 m 00 s", {"for_s": 600.0}),
    ],
)
def test_keeping_models(
    daemon: FakeDaemon, llamactl: Run, args: list[str], path: str, words: str, body: dict[str, float]
) -> None:
    result = llamactl(*args)
    assert result.returncode == 0
    models = [arg for arg in args[1:] if arg in daemon.models]
    assert result.stdout.splitlines() == [f"{model}: {words}" for model in models]
    assert [{k: post[k] for k in ("model", *body)} for post in daemon.posts(path)] == [
        {"model": m, **body} for m in models
    ]


def test_who_is_kept_is_in_the_list(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.models["smollm2"].ours |= {"pinned": True}
    daemon.models["broken"].ours |= {"pinned": True, "held_for_s": 90.0}
    lines = llamactl("list").stdout.splitlines()
    kept = lines[0].index("KEPT")
    assert [line[kept:].split("  ")[0] for line in lines if line.startswith(("smollm2", "broken"))] == [
        "pinned",
        "held 1 m 30 s",
    ]


def test_a_failed_model_is_failed_here_too_and_said_once(explained: FakeDaemon, llamactl: Run) -> None:
    explained.why["broken"] = {**WHY, "failed": True, "reason": "cannot load it: no", "queue": None}
    lines = llamactl("why", "broken").stdout.splitlines()
    assert lines[1].split() == ["state", "failed"]
    assert len([line for line in lines if "cannot load it: no" in line]) == 1


def test_that_nothing_is_left_is_a_number_and_that_nothing_is_said_is_none(
    daemon: FakeDaemon, llamactl: Run
) -> None:
    daemon.events.append(
        {
            "seq": 1,
            "time": 1764567890.5,
            "kind": "evict",
            "model": "a",
            "text": "t",
            "available": {"processes": 0},
            "reserved": {},
        }
    )
    line = llamactl("events").stdout.splitlines()[-1]
    assert line.endswith("t (available processes 0)")


def test_a_time_that_is_none_is_wrong_usage(daemon: FakeDaemon, llamactl: Run) -> None:
    result = llamactl("hold", "smollm2", "--for", "soon")
    assert result.returncode == 2
    assert "cannot read 'soon' as a time" in result.stderr
    assert daemon.posts("/models/hold") == []


def test_where_a_model_is_is_shown(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.models["smollm2"].ours["placement"] = ["CUDA0", "CUDA1"]
    lines = [line.split() for line in llamactl("show", "smollm2").stdout.splitlines()]
    assert ["placed", "on", "CUDA0,", "CUDA1"] in lines
    daemon.models["smollm2"].ours["placement"] = []
    assert "placed on" not in llamactl("show", "smollm2").stdout


def test_needs_and_holds_are_shown(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.models["smollm2"].ours |= {
        "need": {"minimum": {"host": GIB}, "maximum": {"host": 2 * GIB}},
        "held_for_s": 90.0,
    }
    lines = dict(
        line.split("  ", 1) for line in llamactl("show", "smollm2").stdout.splitlines() if "  " in line
    )
    assert lines["needs"].strip() == "host 1.0 GiB at least; host 2.0 GiB at most"
    assert lines["held for"].strip() == "1 m 30 s"
