"""Reload by signal and by request: all or nothing, and what did not change goes on."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.daemon_kit import Daemon, running

MODELS = {"a": "", "b": ""}


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running(MODELS) as daemon:
        yield daemon


def test_added_changed_removed_and_what_stays(daemon: Daemon) -> None:
    kept = daemon.ask("a")[1]["pid"]
    daemon.write_models({"a": "", "c": "|alias = cc"})
    status, answer = daemon.post("/reload")
    assert status == 200
    assert (answer["added"], answer["changed"], answer["removed"], answer["unchanged"]) == (
        ["c"],
        [],
        ["b"],
        1,
    )
    assert answer["restart_needed"] == []
    assert daemon.ask("a")[1]["pid"] == kept
    assert daemon.ask("cc")[1]["model"] == "c"
    assert daemon.ask("b")[0] == 404


def test_a_changed_model_is_replaced_after_its_streams(daemon: Daemon) -> None:
    old = daemon.ask("a")[1]["pid"]
    with daemon.stream("a", n=20) as answer:
        daemon.write_models({"a": "|c = 1024", "b": ""})
        assert daemon.post("/models/reload")[1]["changed"] == ["a"]
        new = daemon.ask("a")[1]
        text = answer.read().decode()
    assert "[DONE]" in text
    assert new["pid"] != old
    assert new["options"]["ctx-size"] == 1024


def test_what_workers_keep_is_called_back(daemon: Daemon) -> None:
    """A kept lease would go on with the rules and the process of before."""
    protocol = lease.WorkerSide()
    with socket.socket(socket.AF_UNIX) as worker:
        worker.settimeout(20)
        worker.connect(str(daemon.runtime / "lease.sock"))

        def heard() -> Iterator[lease.FromSupervisor]:
            while data := worker.recv(1 << 16):
                yield from protocol.feed(data)

        worker.sendall(lease.encode(lease.Hello(1)) + lease.encode(lease.Ask(1, "a")))
        granted = next(message for message in heard() if isinstance(message, lease.Granted))
        assert granted.keep
        daemon.write_models({"a": "|default.temperature = 0", "b": ""})
        assert daemon.post("/reload")[0] == 200
        assert any(isinstance(message, lease.Recall) for message in heard())


def test_hup_reloads(daemon: Daemon) -> None:
    daemon.write_models({**MODELS, "c": ""})
    daemon.signal(signal.SIGHUP)
    assert wait_until(lambda: daemon.ask("c")[0] == 200)
    wait_until(lambda: daemon.state() == "running")


def test_a_new_problem_changes_nothing_and_names_file_and_line(daemon: Daemon) -> None:
    daemon.write_models({"a": "|nonsense = 1", "c": ""})
    status, answer = daemon.post("/reload")
    assert status == 400
    problem = answer["error"]["problems"][0]
    assert problem["file"] == str(daemon.presets)
    assert problem["line"] == 5
    assert "nonsense" in problem["message"]
    assert {model["id"] for model in daemon.get("/models")["data"]} == {"a", "b"}
    assert daemon.ask("b")[0] == 200


def test_a_preset_file_that_was_cut_to_nothing_takes_no_model_away(daemon: Daemon) -> None:
    daemon.presets.write_bytes(b"")
    status, answer = daemon.post("/reload")
    assert status == 400
    assert "it is empty" in answer["error"]["problems"][0]["message"]
    assert daemon.ask("b")[0] == 200


def test_hup_with_a_problem_says_so_in_the_log_and_goes_on(daemon: Daemon) -> None:
    daemon.write_models({"a": "|nonsense = 1"})
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: f"{daemon.presets}:5: cannot" in daemon.log())
    wait_until(lambda: daemon.state() == "running")
    assert daemon.ask("b")[0] == 200


def test_a_reload_after_the_repair_works(daemon: Daemon) -> None:
    daemon.write_models({"a": "|nonsense = 1", "b": ""})
    assert daemon.post("/reload")[0] == 400
    daemon.write_models({"a": "", "b": "", "c": ""})
    assert daemon.post("/reload")[1]["added"] == ["c"]


def test_reload_of_llamacpps_router_is_understood(daemon: Daemon) -> None:
    daemon.write_models({"a": ""})
    assert [model["id"] for model in daemon.get("/models?reload=1")["data"]] == ["a"]


def test_several_reloads_at_once_all_get_an_answer(daemon: Daemon) -> None:
    from tests.process.test_daemon_life import in_background

    asked = [in_background(daemon.post, "/reload") for _ in range(5)]
    for thread, _ in asked:
        thread.join(20)
    assert [answers[0][0] for _, answers in asked] == [200] * 5


def test_a_scan_that_is_killed_changes_nothing(daemon: Daemon) -> None:
    import psutil

    from tests.process.test_daemon_life import in_background

    before = set(daemon.processes())
    thread, answers = in_background(daemon.post, "/reload")
    scan = wait_until(lambda: set(daemon.processes()) - before, every_s=0.001).pop()
    try:
        os.kill(scan.pid, signal.SIGKILL)
    except (ProcessLookupError, psutil.NoSuchProcess):
        pytest.fail("the scan ended before it could be killed")
    thread.join(20)
    assert answers[0][0] == 500
    assert "signal 9" in answers[0][1]["error"]["message"]
    assert daemon.ask("a")[0] == 200


def test_at_the_start_a_problem_leaves_out_its_model_only() -> None:
    with running({"broken": "|nonsense = 1", "good": ""}) as daemon:
        assert daemon.ask("good")[0] == 200
        assert daemon.ask("broken")[0] == 404
        assert "nonsense" in daemon.get("/status")["problems"][0]["message"]
        assert "(model 'broken' is left out)" in daemon.log()
        assert "1 model is configured" in daemon.log()
        # The old problem is no reason to refuse a reload that changes something else.
        daemon.write_models({"broken": "|nonsense = 1", "good": "", "more": ""})
        assert daemon.post("/reload")[0] == 200
        assert daemon.ask("more")[0] == 200
