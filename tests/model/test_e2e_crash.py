"""SIGKILL to each kind of process, and what clients see of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psutil
import pytest
import requests

from tests.conftest import wait_until
from tests.harness import Llamad, events, text_of

pytestmark = pytest.mark.model


@pytest.fixture
def daemon(presets: str) -> Iterator[Llamad]:
    with Llamad(presets) as daemon:
        yield daemon


def long_stream(daemon: Llamad) -> requests.Response:
    return daemon.chat("smol", "Tell me a long story.", stream=True, max_tokens=400, ignore_eos=True)


def test_an_instance_killed_in_mid_stream(daemon: Llamad) -> None:
    stream = events(long_stream(daemon))
    seen = [next(stream) for _ in range(5)]
    (row,) = daemon.ps("instance", "smol")
    os.kill(row["pid"], signal.SIGKILL)
    seen += list(stream)

    assert "[DONE]" not in seen
    assert seen[-1]["error"]["code"] == 502
    assert seen[-1]["error"]["kind"] == "instance-died"
    assert "SIGKILL" in seen[-1]["error"]["message"]
    assert sum("error" in event for event in seen) == 1

    model = daemon.model("smol")
    assert model["status"]["value"] == "unloaded"
    assert model["status"]["failed"] is True
    assert model["status"]["exit_code"] == 128 + signal.SIGKILL
    assert model["llamad"]["signal"] == signal.SIGKILL
    assert "SIGKILL" in model["llamad"]["reason"]

    # The pause after a first failure is about a second; until then requests are refused with a hint.
    answer = wait_until(lambda: _ok(daemon.chat("smol", "hi", max_tokens=2)), within_s=30, every_s=0.2)
    assert answer["choices"][0]["message"]["content"] is not None
    assert "failed" not in daemon.model("smol")["status"]
    assert daemon.ps("instance", "smol")[0]["pid"] != row["pid"]


def _ok(answer: requests.Response) -> dict | None:
    if answer.status_code == 200:
        return answer.json()
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["Retry-After"]) >= 1
    return None


def test_a_worker_killed(daemon: Llamad) -> None:
    assert daemon.chat("smol", "hi", max_tokens=2).status_code == 200
    before = daemon.workers()
    stream = events(long_stream(daemon))
    next(stream)
    wait_until(lambda: daemon.model("smol")["llamad"]["leases"] == 1)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(requests.RequestException):
        list(stream)
    wait_until(lambda: daemon.model("smol")["llamad"]["leases"] == 0)
    wait_until(lambda: len(daemon.workers() - before) == len(before), within_s=20)
    assert before.isdisjoint(daemon.workers())
    answer = wait_until(lambda: _answer(daemon), within_s=20)
    assert answer.status_code == 200
    (row,) = daemon.ps("instance", "smol")
    wait_until(lambda: daemon.ps("instance", "smol")[0]["stats"]["slots_busy"] == 0)
    assert psutil.pid_exists(row["pid"])


def _answer(daemon: Llamad) -> requests.Response | None:
    try:
        return daemon.chat("smol", "hi", max_tokens=2)
    except requests.ConnectionError:
        return None


def test_the_supervisor_killed_leaves_nothing_one_second_later(presets: str) -> None:
    daemon = Llamad(presets)
    try:
        daemon.start()
        assert daemon.chat("smol", "hi", max_tokens=2).status_code == 200
        stream = events(long_stream(daemon))
        next(stream)
        tree = daemon.processes()
        assert len(tree) >= 4, tree  # supervisor, arbiter, worker, instance
        daemon.kill()
        wait_until(lambda: not daemon.left(), within_s=1.0)
    finally:
        daemon.clear()


def test_it_starts_again_over_the_leavings_of_a_killed_one(presets: str) -> None:
    with Llamad(presets) as daemon:
        daemon.kill()
        wait_until(lambda: not daemon.left(), within_s=2.0)
        daemon.start()
        assert daemon.chat("smol", "hi", max_tokens=2).status_code == 200


def test_an_orderly_stop_lets_a_short_stream_finish(presets: str) -> None:
    with Llamad(presets) as daemon:
        stream = events(daemon.chat("smol", "Count.", stream=True, max_tokens=30, ignore_eos=True))
        seen = [next(stream)]
        os.kill(daemon.pid, signal.SIGTERM)
        seen += list(stream)
        assert seen[-1] == "[DONE]"
        assert text_of(seen)
        wait_until(lambda: not daemon.left(), within_s=15)
        # A stopped daemon cannot be stopped again: __exit__ only collects its status.
