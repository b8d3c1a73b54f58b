"""Real models with a margin that admits one of two: everybody is answered, and nothing is promised twice."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.conftest import wait_until
from tests.harness import Document, Llamad, UnixConnection

pytestmark = pytest.mark.model

MIB = 1 << 20
CLIENTS = 8
REQUESTS = 25
"""Of each client."""
BURST = 5
"""Requests of a client to one model before it turns to the other; each swap is worth some work then."""


def presets(smollm2: Path, gemma: Path) -> str:
    """Contexts that make both large enough for the noise of a shared machine not to matter."""
    return f"""version = 1
[smol]
model = {smollm2}
c = 16384
np = 4

[gemma]
model = {gemma}
c = 16384
np = 4
"""


@dataclass(frozen=True)
class Sizes:
    """What both were measured to need of the host, and the margin that leaves room for one of them."""

    smol: int
    gemma: int
    margin_mib: int


@pytest.fixture(scope="module")
def text(smollm2: Path, gemma: Path) -> str:
    return presets(smollm2, gemma)


@pytest.fixture(scope="module")
def sizes(text: str) -> Sizes:
    with Llamad(text, "--models-memory-margin", "0") as daemon:
        for model in ("smol", "gemma"):
            complete(daemon, model)
        needs = [daemon.model(model)["llamad"]["need"]["maximum"]["host"] for model in ("smol", "gemma")]
        host = books(daemon)
    # What others use goes up and down meanwhile; less than this would have to come free for both to fit.
    room = max(needs) + min(needs) // 8
    free = host["total_bytes"] - host["external_bytes"]
    assert free > 2 * room, "this machine is too small for the test"
    return Sizes(*needs, (free - room) // MIB)


@pytest.fixture
def daemon(text: str, sizes: Sizes) -> Iterator[Llamad]:
    with Llamad(text, "--models-memory-margin", str(sizes.margin_mib)) as daemon:
        yield daemon


def books(daemon: Llamad) -> Document:
    return next(device for device in daemon.admin("GET", "/status")["devices"] if device["name"] == "host")


def complete(daemon: Llamad, model: str) -> str:
    body = {"model": model, "prompt": "One, two, three, four,", "max_tokens": 2, "temperature": 0}
    answer = daemon.post("/v1/completions", body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["model"])


@contextmanager
def sampled(daemon: Llamad) -> Iterator[list[Document]]:
    samples: list[Document] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.1):
            samples.append(books(daemon))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join(10)


def client(daemon: Llamad, number: int) -> list[bool]:
    models = ("smol", "gemma") if number % 2 else ("gemma", "smol")
    wanted = [models[(n // BURST) % 2] for n in range(REQUESTS)]
    return [complete(daemon, model) == model for model in wanted]


def test_two_hundred_requests_of_eight_clients_with_room_for_one(daemon: Llamad, sizes: Sizes) -> None:
    with sampled(daemon) as samples, ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(lambda number: client(daemon, number), range(CLIENTS)))
    assert [len(answer) for answer in answers] == [REQUESTS] * CLIENTS
    assert all(map(all, answers))
    assert len(samples) > 20
    assert all(sample["held_bytes"] <= (sizes.smol + sizes.gemma) * 1.05 for sample in samples)
    promised, evicted = promises(daemon)
    assert len(promised) >= 2
    assert all(reserved <= available for reserved, available in promised), promised
    assert evicted, "there was never room for both"


def decisions(daemon: Llamad) -> list[Document]:
    connection = UnixConnection(daemon.folder / "run" / "admin.sock", 10.0)
    try:
        connection.request("GET", "/events?n=1000")
        return [json.loads(line) for line in connection.getresponse().read().splitlines()]
    finally:
        connection.close()


def promises(daemon: Llamad) -> tuple[list[tuple[int, int]], int]:
    """What each load was promised of the host, beside what was there; and how many left for others.

    A load that was tried though others held the room, and said so, is not among them: the machine is not ours alone.
    """
    promised, tried, evicted = [], set(), 0
    for event in decisions(daemon):
        if event["kind"] == "overcommit":
            tried.add(event["model"])
        elif event["kind"] == "load" and event["model"] in tried:
            tried.discard(event["model"])
        elif event["kind"] == "load":
            promised.append((event["reserved"]["host"], event["available"]["host"]))
        evicted += event["kind"] == "evict"
    return promised, evicted


def test_what_is_held_is_what_the_process_has(daemon: Llamad, sizes: Sizes) -> None:
    """The cross-check: weights and caches are there; compute buffers are touched late, libraries are not counted."""
    complete(daemon, "smol")
    memory = daemon.model("smol")["llamad"]["memory"]["host"]
    assert memory["held_bytes"] == pytest.approx(sizes.smol, rel=0.05)
    assert memory["measured_bytes"] == memory["held_bytes"] + memory["discrepancy_bytes"]
    assert 0.2 < memory["measured_bytes"] / memory["held_bytes"] < 1.5
    assert daemon.admin("GET", "/plan/gemma")["outcome"] == "measures"


def test_after_a_hundred_kills_stops_and_unloads_the_books_equal_what_lives(text: str, sizes: Sizes) -> None:
    rng = random.Random(7)
    presets = text.replace("np = 4", "np = 4\nstop-timeout = 1")
    with Llamad(presets, "--models-memory-margin", str(sizes.margin_mib), "--drain-after", "1") as daemon:
        for model in ("smol", "gemma"):  # one that is killed while it is measured would load unchecked
            complete(daemon, model)
        over, stopped = threading.Event(), list[int]()
        with sampled(daemon) as samples, ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(asks_until, daemon, over, seed) for seed in range(4)]
            for _ in range(100):
                harm(daemon, rng, stopped)
                over.wait(
                    rng.uniform(0, 0.6)
                )  # a load takes as long: some come to an end, and the others to none
            for pid in stopped:
                send(pid, signal.SIGCONT)
            over.set()
            statuses = set().union(*(client.result(120) for client in clients))
        assert 200 in statuses
        assert statuses <= {200, 502, 503}, "each was answered, if only with what had gone wrong"
        assert all(sample["held_bytes"] <= (sizes.smol + sizes.gemma) * 1.05 for sample in samples)
        wait_until(lambda: settled(daemon), 60)
        alive = [model for model in daemon.admin("GET", "/models")["data"] if model["llamad"]["pid"]]
        held = {model["llamad"]["pid"]: model["llamad"]["memory"]["host"]["held_bytes"] for model in alive}
        assert all(psutil.pid_exists(pid) for pid in held)
        assert sorted(row["pid"] for row in daemon.ps("instance")) == sorted(held)
        assert not daemon.ps("measure")
        for model in alive:
            size = sizes.smol if model["id"] == "smol" else sizes.gemma
            assert model["llamad"]["memory"]["host"]["held_bytes"] == pytest.approx(size, rel=0.05)
        wait_until(lambda: books(daemon)["held_bytes"] == sum(held.values()), 60)
        for model in ("smol", "gemma"):
            wait_until(lambda model=model: status_of(daemon, model) == 200, 60)


def status_of(daemon: Llamad, model: str) -> int:
    body = {"model": model, "prompt": "One, two,", "max_tokens": 2, "temperature": 0}
    return daemon.post("/v1/completions", body).status_code


def asks_until(daemon: Llamad, over: threading.Event, seed: int) -> set[int]:
    """A client that goes on whatever it is told; the statuses of its answers."""
    rng, statuses = random.Random(seed), set[int]()
    while not over.is_set():
        statuses.add(status_of(daemon, rng.choice(("smol", "gemma"))))
    return statuses


def harm(daemon: Llamad, rng: random.Random, stopped: list[int]) -> None:
    pids = [row["pid"] for role in ("instance", "measure") for row in daemon.ps(role)]
    what = rng.random()
    if what < 0.3 and pids:
        send(rng.choice(pids), signal.SIGKILL)
    elif what < 0.5 and pids:
        stopped.append(rng.choice(pids))
        send(stopped[-1], signal.SIGSTOP)
    elif what < 0.6 and stopped:
        send(stopped.pop(), signal.SIGCONT)
    else:
        body = {"model": rng.choice(("smol", "gemma")), "force": rng.random() < 0.5}
        daemon.admin("POST", "/models/unload", body)


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def settled(daemon: Llamad) -> bool:
    status = daemon.admin("GET", "/status")
    busy = [m for m in status["models"] if m["status"]["value"] == "loading" or m["llamad"]["stopping"]]
    return not status["queue"] and not busy
