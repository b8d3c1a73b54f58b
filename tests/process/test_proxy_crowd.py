"""A thousand idle streams and two hundred that talk: what they hold is bounded, others are served, and all of it comes back.

Once in front of a supervisor that grants everything, for what streams cost the worker; once in front of the real one, for its
queue.
"""

from __future__ import annotations

import json
import resource
import selectors
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil
import pytest

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.daemon_kit import Daemon, running
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, instance, whole_front

IDLE = 1000
ACTIVE = 200
EVENTS = 10
EVERY_S = 0.2
OTHER = "other"
# A relayed stream has its client's connection and the instance's. The rest: connections of the probes, idle ones of the pool.
FILES_PER_STREAM = 2
FILES_MORE = 150
CONNECTIONS_MAX = IDLE + ACTIVE + 20
STREAM_BYTES_MAX = 150 * 1024
# What a thousand and two hundred streams hold is some 35 MiB; so much of it may stay.
KEPT_BYTES_MAX = 20 << 20
OPENED_WITHIN_S = 30.0
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module", autouse=True)
def many_files() -> Iterator[None]:
    """As many as the machine lets this process, and so its children, have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > 2 * (IDLE + ACTIVE) + 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def crowd(port: int, count: int, model: str, **fields: object) -> Iterator[list[Client]]:
    """So many clients that have asked, and read nothing yet; gone without a word at the end."""
    clients: list[Client] = []
    try:
        for _ in range(count):
            client = Client(port, OPENED_WITHIN_S)
            clients.append(client)
            body = json.dumps({"model": model, "messages": [], **fields}).encode()
            client.send("POST", "/v1/chat/completions", body, content_type="application/json")
        yield clients
    finally:
        for client in clients:
            client.socket.close()


def read_to_end(clients: Sequence[Client], within_s: float) -> list[bytes]:
    """The chunked answers of all, as they come."""
    said = [bytearray() for _ in clients]
    ends_at = time.monotonic() + within_s
    with selectors.DefaultSelector() as selector:
        for number, client in enumerate(clients):
            selector.register(client.socket, selectors.EVENT_READ, number)
        while selector.get_map():
            assert time.monotonic() < ends_at, f"{len(selector.get_map())} still run"
            for key, _ in selector.select(1.0):
                data = key.fileobj.recv(65536)
                said[key.data] += data
                if not data or said[key.data].endswith(END):
                    selector.unregister(key.fileobj)
    return [bytes(one) for one in said]


def assert_answers(port: int, model: str) -> None:
    with Client(port) as client:
        client.post("stream", model=model, events=2, every_s=0.01, stream=True)
        status, _, body = client.answer()
        assert status == 200, body
        assert body.endswith(DONE)


# ---- what streams cost a worker


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Front, FakeSupervisor]]:
    with (
        whole_front(connections_max=CONNECTIONS_MAX) as (front, supervisor),
        instance() as slow,
        instance() as quick,
    ):
        supervisor.grant(MODEL, slow.address)
        supervisor.grant(OTHER, quick.address, child=2)
        assert_answers(front.port, MODEL)
        assert_answers(front.port, OTHER)
        yield front, supervisor


def test_a_thousand_idle_streams_and_two_hundred_that_talk(
    parts: tuple[Front, FakeSupervisor],
) -> None:
    front, supervisor = parts
    (worker,) = front.workers()
    files, held_bytes = worker.num_fds(), worker.memory_info().rss
    for count in (IDLE, IDLE // 4):
        with crowd(front.port, count, MODEL, play="head") as idle:
            for client in idle:
                assert client.head()[0] == 200
            with crowd(front.port, ACTIVE, MODEL, play="stream", events=EVENTS, every_s=EVERY_S) as active:
                assert worker.num_fds() <= files + FILES_PER_STREAM * (count + ACTIVE) + FILES_MORE
                assert worker.memory_info().rss - held_bytes < STREAM_BYTES_MAX * (IDLE + ACTIVE)
                assert_answers(front.port, OTHER)
                assert_all_events(read_to_end(active, 60))
                if count == IDLE:
                    assert_over_the_limit_is_503(front)
        wait_until(lambda: worker.num_fds() <= files + FILES_MORE, OPENED_WITHIN_S)
        wait_until(lambda: supervisor.open_leases() == 0)
        wait_until(lambda: worker.memory_info().rss - held_bytes < KEPT_BYTES_MAX, OPENED_WITHIN_S)
        assert_answers(front.port, MODEL)
    assert front.workers() == [worker]
    assert "Traceback" not in front.log_text()
    outcomes = {release.outcome for release in supervisor.heard(lease.Release)}
    assert outcomes == {"ok", "hung-up"}


def assert_all_events(answers: Sequence[bytes]) -> None:
    """Each has all its events, in order, and its end."""
    wanted = [b"data: %d" % number for number in range(EVENTS)] + [b"data: [DONE]"]
    for answer in answers:
        assert [line for line in answer.split(b"\n") if line.startswith(b"data: ")] == wanted


def assert_over_the_limit_is_503(front: Front) -> None:
    """Each connection too many is told so, and closed. Those that have ended their answers give way."""
    with crowd(front.port, CONNECTIONS_MAX - IDLE + 10, MODEL, play="head") as more:
        refused = 0
        for client in more:
            status, headers = client.head()
            assert status in (200, 503)
            if status == 503:
                refused += 1
                body = client.read_exactly(int(headers["content-length"]))
                assert json.loads(body)["error"]["kind"] == "too-many-connections"
                assert client.receive() == b""
        assert refused >= 10


# ---- the queue of the real supervisor


def test_a_thousand_in_a_slow_models_queue() -> None:
    """Two slots that are taken, a queue that is full, and another model."""
    models = {"slow": "", OTHER: ""}
    options = ("--max-queued", str(IDLE), "--queue-timeout", "300", "--models-max", "2")
    with running(models, *options) as daemon:
        worker = worker_of(daemon)
        assert daemon.ask(OTHER)[0] == 200
        assert daemon.ask("slow")[0] == 200
        supervisor = psutil.Process(daemon.process.pid)
        files, supervisors_files = worker.num_fds(), supervisor.num_fds()
        with crowd(daemon.port, IDLE + 3, "slow", stream=True, n=100_000, every_s=0.5):
            wait_until(lambda: queued(daemon) == IDLE, OPENED_WITHIN_S)
            assert worker.num_fds() <= files + FILES_PER_STREAM * (IDLE + 3) + FILES_MORE
            assert supervisor.num_fds() <= supervisors_files + 10
            with Client(daemon.port) as client:
                client.post("echo", model="slow")
                status, error, headers = client.error()
                assert (status, error["kind"]) == (429, "queue-full")
                assert int(headers["retry-after"]) >= 1
            assert daemon.ask(OTHER)[0] == 200
        wait_until(lambda: queued(daemon) == 0, OPENED_WITHIN_S)
        wait_until(lambda: worker.num_fds() <= files + FILES_MORE, OPENED_WITHIN_S)
        wait_until(lambda: daemon.model("slow")["llamad"]["leases"] == 0)
        assert daemon.ask("slow")[0] == 200


def worker_of(daemon: Daemon) -> psutil.Process:
    rows = daemon.get("/ps")["processes"]
    (pid,) = (row["pid"] for row in rows if row["role"] == "proxy" and row["state"] == "worker")
    return psutil.Process(pid)


def queued(daemon: Daemon) -> int:
    return int(daemon.model("slow")["llamad"]["waiting"])
