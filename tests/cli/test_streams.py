"""logs and events: history, following, and every way for a stream to end."""

from __future__ import annotations

import json
import signal
from typing import IO

import pytest

from tests.cli.conftest import BOUND_S, Run, Start
from tests.cli.fake_daemon import FakeDaemon


def read_lines(stream: IO[str], count: int) -> list[str]:
    """`count` lines. pytest's own time limit bounds the wait."""
    return [stream.readline().rstrip("\n") for _ in range(count)]


def test_history_by_number_of_lines(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.log = [f"line {number}" for number in range(300)]
    assert llamactl("logs").stdout.splitlines() == daemon.log[-100:]
    assert llamactl("logs", "-n", "2").stdout.splitlines() == daemon.log[-2:]
    assert llamactl("logs", "-n", "0").stdout == ""


@pytest.mark.parametrize("chunked", [True, False])
def test_following_gives_each_line_at_once_and_ends_with_ctrl_c(
    daemon: FakeDaemon, start: Start, chunked: bool
) -> None:
    daemon.chunked = chunked
    process = start("logs", "smollm2", "-f", "-n", "1")
    assert process.stdout is not None
    assert read_lines(process.stdout, 1) == ["ready"]
    daemon.write(daemon.models["smollm2"].log, "slot 0: new", "grüße 🦙")
    assert read_lines(process.stdout, 2) == ["slot 0: new", "grüße 🦙"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out, err) == (130, "", "")


def test_events_follow(daemon: FakeDaemon, start: Start) -> None:
    process = start("events", "-f", "--json")
    assert process.stdout is not None
    event = {"seq": 1, "time": 1.5, "kind": "loaded", "model": "smollm2", "text": "loaded"}
    daemon.write(daemon.events, event)
    assert json.loads(process.stdout.readline()) == event
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, err) == (130, "")


def test_a_stream_that_the_daemon_ends(daemon: FakeDaemon, start: Start) -> None:
    process = start("logs", "-f")
    assert process.stdout is not None
    read_lines(process.stdout, 2)
    with daemon.news:
        daemon.closing = True
        daemon.news.notify_all()
    _, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, err) == (0, "")


def test_a_stream_that_breaks_off(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.cut_after_line = "first line"
    result = llamactl("logs", "-f")
    assert (result.returncode, result.stdout) == (3, "first line\n")
    assert "it closed the connection" in result.stderr


def test_a_reader_that_leaves_ends_it_quietly(daemon: FakeDaemon, start: Start) -> None:
    process = start("logs", "-f")
    assert process.stdout is not None
    read_lines(process.stdout, 2)
    process.stdout.close()
    daemon.write(daemon.log, "nobody reads this")
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(BOUND_S) != 0


def test_a_broken_event_is_told(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.events = ["{no json"]  # type: ignore[list-item]
    result = llamactl("events")
    assert result.returncode == 1
    assert "cannot read an event" in result.stderr
