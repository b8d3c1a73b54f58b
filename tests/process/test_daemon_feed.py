"""`/models/sse`: who watches models over the public port hears each change of a state, and nothing that is not for him."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.process.daemon_kit import Daemon, running

MODELS = {"a": "load_s=0.2", "hidden": "|unlisted = true"}


@contextmanager
def watching(daemon: Daemon) -> Iterator[http.client.HTTPResponse]:
    """The answer has begun, so nothing that happens from now on is missed."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    try:
        connection.request("GET", "/models/sse")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
        assert answer.readline() == b": ping\n"
        yield answer
    finally:
        connection.close()


def event(answer: http.client.HTTPResponse) -> Any:
    """The next one, without comments. Raises AssertionError at the end of the stream."""
    while True:
        line = answer.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            return json.loads(line.removeprefix(b"data: "))


def states_until(answer: http.client.HTTPResponse, last: str) -> list[dict[str, Any]]:
    """The data of all changes of `a`, up to the one that says `last`. Other models are not told of."""
    told = []
    while not told or told[-1]["status"] != last:
        change = event(answer)
        assert (change["model"], change["event"]) == ("a", "status_change")
        told.append(change["data"])
    return told


def test_a_load_and_an_unload_are_told_and_hidden_models_are_not() -> None:
    with running(MODELS) as daemon, watching(daemon) as answer:
        assert daemon.post("/models/load", model="hidden", wait=True)[0] == 200
        assert daemon.ask("a")[0] == 200
        first, *reports, last = states_until(answer, "loaded")
        assert (first, last) == ({"status": "loading"}, {"status": "loaded"})
        values = [report["progress"]["value"] for report in reports]
        assert values == sorted(values)
        assert all(0 <= value <= 1 for value in values)
        assert daemon.post("/models/unload", model="a")[0] == 200
        assert states_until(answer, "unloaded")[-1] == {"status": "unloaded", "exit_code": 0}


def test_a_crash_is_told_with_its_exit_code() -> None:
    with running(MODELS) as daemon, watching(daemon) as answer:
        assert daemon.ask("a")[0] == 200
        states_until(answer, "loaded")
        [instance] = [row for row in daemon.get("/ps")["processes"] if row["role"] == "instance"]
        [process] = [found for found in daemon.processes() if found.pid == instance["pid"]]
        process.kill()
        assert states_until(answer, "unloaded")[-1] == {"status": "unloaded", "exit_code": 128 + 9}


def test_operators_hear_of_hidden_models() -> None:
    with running(MODELS) as daemon, daemon.following("/models/sse") as answer:
        assert daemon.post("/models/load", model="hidden")[0] == 200
        assert event(answer)["model"] == "hidden"


def test_a_reload_is_told() -> None:
    with running(MODELS) as daemon, watching(daemon) as answer:
        assert daemon.post("/models/reload")[0] == 200
        assert event(answer) == {"model": "*", "event": "models_reload"}


def test_only_the_head() -> None:
    with running(MODELS) as daemon:
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
        connection.request("HEAD", "/models/sse")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        connection.close()


def test_a_stop_does_not_wait_for_who_watches() -> None:
    with running(MODELS, "--stop-timeout", "600") as daemon, watching(daemon) as answer:
        assert daemon.stop() == 0
        assert answer.read().strip() == b""
