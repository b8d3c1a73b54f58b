"""Instances under the real monitor: loads, stops and their escalation, crashes, protocol faults, logs."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.conftest import wait_until
from tests.process.daemon_kit import Daemon, running
from tests.process.test_daemon_life import in_background

MODELS = {
    "good": "",
    "slow": "load_s=30",
    "deaf": "ignore_exit|stop-timeout = 1",
    "stubborn": "ignore_exit ignore_term|stop-timeout = 1",
    "failing": "fail",
    "dying": "die=3",
    "aborting": "abort",
    "disorderly": "disorder",
    "stray": "stray_address",
    "chatty": "chatty=5000",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running(MODELS) as daemon:
        yield daemon


@pytest.fixture(autouse=True)
def nothing_loaded(daemon: Daemon) -> Iterator[None]:
    yield
    for model in daemon.get("/models")["data"]:
        if model["status"]["value"] != "unloaded":
            daemon.post("/models/unload", model=model["id"], force=True, wait=True)
    wait_until(lambda: not instances(daemon))
    assert not daemon.zombies()


def instances(daemon: Daemon) -> list[int]:
    return [row["pid"] for row in daemon.get("/ps")["processes"] if row["role"] == "instance"]


def test_load_waits_for_the_end_state_and_unload_for_the_processes_end(daemon: Daemon) -> None:
    status, answer = daemon.post("/models/load", model="good", wait=True)
    assert (status, answer["success"], answer["status"]["value"]) == (200, True, "loaded")
    assert not answer["already"]
    assert daemon.post("/models/load", model="good", wait=True)[1]["already"]
    pid = daemon.model("good")["llamad"]["pid"]
    assert psutil.pid_exists(pid)
    status, answer = daemon.post("/models/unload", model="good", wait=True)
    assert (status, answer["status"]["value"]) == (200, "unloaded")
    assert not answer["already"]
    assert not psutil.pid_exists(pid)
    assert daemon.post("/models/unload", model="good", wait=True)[1]["already"]


def test_load_without_waiting_answers_at_once(daemon: Daemon) -> None:
    began = time.monotonic()
    status, answer = daemon.post("/models/load", model="slow")
    assert (status, answer["status"]["value"]) == (200, "loading")
    assert time.monotonic() - began < 1
    progress = wait_until(lambda: daemon.model("slow")["status"].get("progress"))
    assert 0 < progress < 1


def test_a_load_can_be_stopped_in_the_middle(daemon: Daemon) -> None:
    thread, answers = in_background(daemon.post, "/models/load", model="slow", wait=True)
    wait_until(lambda: daemon.value("slow") == "loading" and instances(daemon))
    assert daemon.post("/models/unload", model="slow", wait=True)[0] == 200
    thread.join(10)
    assert answers[0][0] == 503
    assert not instances(daemon)


@pytest.mark.parametrize("model", ["deaf", "stubborn"])
def test_who_does_not_leave_when_asked_is_made_to(daemon: Daemon, model: str) -> None:
    daemon.post("/models/load", model=model, wait=True)
    began = time.monotonic()
    assert daemon.post("/models/unload", model=model, wait=True)[0] == 200
    assert time.monotonic() - began < 5
    assert not instances(daemon)


def test_an_ordered_end_is_no_failure(daemon: Daemon) -> None:
    daemon.post("/models/load", model="stubborn", wait=True)
    daemon.post("/models/unload", model="stubborn", wait=True)
    assert "failed" not in daemon.model("stubborn")["status"]


def test_why_a_load_failed_reaches_the_operator_and_the_client(daemon: Daemon) -> None:
    status, answer = daemon.post("/models/load", model="failing", wait=True)
    assert status >= 500
    assert "told to fail" in answer["error"]["message"]
    document = daemon.model("failing")
    assert document["status"]["failed"] is True
    assert document["status"]["exit_code"] == 1
    status, answer = daemon.ask("failing")
    assert status >= 500
    assert "told to fail" in answer["error"]["message"]


@pytest.mark.parametrize(("model", "exit_code", "number"), [("dying", 3, None), ("aborting", 134, 6)])
def test_exit_code_and_signal_are_told_apart(
    daemon: Daemon, model: str, exit_code: int, number: int | None
) -> None:
    assert daemon.post("/models/load", model=model, wait=True)[0] >= 500
    document = daemon.model(model)
    assert document["status"]["exit_code"] == exit_code
    assert document["llamad"]["signal"] == number


@pytest.mark.parametrize("model", ["disorderly", "stray"])
def test_who_breaks_the_protocol_is_ended(daemon: Daemon, model: str) -> None:
    status, answer = daemon.post("/models/load", model=model, wait=True)
    assert status >= 500
    assert "cannot" in answer["error"]["message"]
    wait_until(lambda: not instances(daemon))


def test_killed_between_requests_it_is_loaded_again_for_the_next(daemon: Daemon) -> None:
    first = daemon.ask("good")[1]["pid"]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: daemon.value("good") == "unloaded")
    document = daemon.model("good")
    assert document["status"]["failed"] is True
    assert document["llamad"]["signal"] == signal.SIGKILL
    assert daemon.post("/models/load", model="good", wait=True)[0] == 200
    assert daemon.ask("good")[1]["pid"] != first


def test_killed_in_the_middle_of_a_stream_the_client_hears_of_it(daemon: Daemon) -> None:
    pid = daemon.ask("good")[1]["pid"]
    with daemon.stream("good", n=200) as answer:
        os.kill(pid, signal.SIGKILL)
        rest = answer.read().decode()
    assert '"error"' in rest
    assert "[DONE]" not in rest


def test_a_stopped_process_does_not_slow_the_others(daemon: Daemon) -> None:
    daemon.post("/models/load", model="good", wait=True)
    daemon.post("/models/load", model="deaf", wait=True)
    pid = daemon.model("deaf")["llamad"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    assert daemon.ask("good")[0] == 200
    assert daemon.get("/status")["daemon"]["state"] == "running"
    assert time.monotonic() - began < 2


def test_fifty_crashes_leave_no_zombie_and_no_descriptor(daemon: Daemon) -> None:
    supervisor = psutil.Process(daemon.process.pid)
    daemon.post("/models/load", model="dying", wait=True)
    before = supervisor.num_fds()
    for _ in range(50):
        assert daemon.post("/models/load", model="dying", wait=True)[0] >= 500
    assert not daemon.zombies()
    assert not instances(daemon)
    # The connection that asks for the number may or may not be closed yet.
    wait_until(lambda: supervisor.num_fds() <= before + 1)


def test_a_models_log_is_bounded_and_outlives_its_process(daemon: Daemon) -> None:
    daemon.post("/models/load", model="chatty", wait=True)
    daemon.post("/models/unload", model="chatty", wait=True)
    lines = daemon.get("/logs/chatty?n=99999").splitlines()
    assert lines[-1] == "fake chatty line 4999"
    assert len(lines) <= 2000
    assert daemon.get("/logs/chatty?n=2").splitlines() == lines[-2:]


def test_secrets_are_nowhere_to_be_read(daemon: Daemon) -> None:
    """The token between front and instance is not in any argv, environment or log."""
    daemon.ask("good")
    instance = psutil.Process(daemon.model("good")["llamad"]["pid"])
    public = " ".join(instance.cmdline()) + " ".join(instance.environ().values())
    # What the daemon makes tokens with has 43 characters of this alphabet.
    assert not re.search(r"[A-Za-z0-9_-]{43}", public.replace("/", " "))
    assert "Bearer" not in daemon.log()


def test_decisions_are_told_with_their_reasons(daemon: Daemon) -> None:
    daemon.post("/models/load", model="good", wait=True)
    events = daemon.get("/events?n=5").splitlines()
    assert any('"kind":"loaded","model":"good"' in event for event in events)
