"""Clients that take for ever to say what they want: they hold no lease, meet a limit, and keep nobody else waiting."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, instance, whole_front

KEEPALIVE_S = 1
TIMEOUT_S = 2
# Generous, as machines that test do other things too.
ENDED_WITHIN_S = 15.0
CROWD = 100

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: front\r\n"
DECLARED = HEAD + b"content-length: 100000\r\n\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Front, FakeSupervisor]]:
    with (
        whole_front(keepalive_s=KEEPALIVE_S, timeout_s=TIMEOUT_S) as (front, supervisor),
        instance() as running,
    ):
        supervisor.grant(MODEL, running.address)
        yield front, supervisor
        assert "Traceback" not in front.log_text()


@pytest.fixture
def supervisor(parts) -> FakeSupervisor:
    parts[1].told.clear()
    return parts[1]


@pytest.fixture
def front(parts, supervisor: FakeSupervisor) -> Front:
    return parts[0]


def assert_served(front: Front) -> None:
    """A whole request, by somebody else."""
    with Client(front.port) as client:
        client.post("stream", events=3, every_s=0.01)
        assert client.answer()[2].endswith(b"data: [DONE]\n\n")


def drip(client: Client, start: bytes, more: Callable[[int], bytes]) -> bytes:
    """Send `start` and then a little at a time until the front ends it; what it said."""
    client.socket.sendall(start)
    client.socket.settimeout(0.1)
    said = bytearray()
    began = time.monotonic()
    number = 0
    while time.monotonic() - began < ENDED_WITHIN_S:
        try:
            data = client.socket.recv(65536)
            if not data:
                return bytes(said)
            said += data
        except TimeoutError:
            pass
        except ConnectionError:
            return bytes(said)
        number += 1
        try:
            client.socket.sendall(more(number))
        except OSError:
            return bytes(said)
    raise AssertionError(f"still open after {ENDED_WITHIN_S} s and {number} pieces, said {bytes(said)!r}")


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"", lambda number: b""),
        (b"G", lambda number: b"E"),
        (HEAD, lambda number: b"x-%d: slow\r\n" % number),
        (HEAD + b"x-long: ", lambda number: b"x"),
        (b"", lambda number: b"\r\n"),
    ],
    ids=["nothing", "method", "headers", "value", "lines"],
)
def test_a_head_that_never_ends_is_ended(front: Front, supervisor: FakeSupervisor, start, more):
    with Client(front.port) as client:
        said = drip(client, start, more)
    assert not said or said.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    assert not supervisor.heard(lease.Ask)
    assert_served(front)


def test_a_second_head_on_a_kept_connection_has_a_limit_too(front: Front):
    with Client(front.port) as client:
        client.send("GET", "/health")
        assert client.answer()[0] == 200
        drip(client, b"GET /health HTTP/1.1\r\n", lambda number: b"x-%d: slow\r\n" % number)


@pytest.mark.parametrize(
    "start", [DECLARED, DECLARED + b"{", CHUNKED, CHUNKED + b"5\r\nhe", CHUNKED + b"5\r\nhello\r\n0\r\n"]
)
def test_a_body_that_stops_is_408(front: Front, supervisor: FakeSupervisor, start: bytes):
    with Client(front.port, ENDED_WITHIN_S) as client:
        client.socket.sendall(start)
        status, error, _ = client.error()
        assert (status, error["kind"]) == (408, "body-cut-short")
        assert client.receive() == b""
    assert not supervisor.heard(lease.Ask)


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (DECLARED, lambda number: b" "),
        (CHUNKED, lambda number: b"1\r\n \r\n"),
        (CHUNKED, lambda number: b"0" if number < 5 else b""),
        (CHUNKED + b"5;", lambda number: b"e"),
        (CHUNKED + b"0\r\n", lambda number: b"x-%d: trailer\r\n" % number),
    ],
    ids=["declared", "chunks", "size", "extension", "trailers"],
)
def test_a_body_that_drips_holds_nothing_but_its_connection(
    front: Front, supervisor: FakeSupervisor, start, more
):
    with ExitStack() as stack:
        slow = [stack.enter_context(Client(front.port)) for _ in range(20)]
        for client in slow:
            client.socket.sendall(start)
        for number in range(1, 6):
            for client in slow:
                client.socket.sendall(more(number))
            assert_served(front)
    assert len(supervisor.heard(lease.Ask)) == 5
    wait_until(lambda: supervisor.open_leases() == 0)


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (DECLARED, lambda number: b" "),
        (CHUNKED, lambda number: b"1\r\n \r\n"),
        (CHUNKED + b"0\r\n", lambda number: b"x-%d: trailer\r\n" % number),
    ],
    ids=["declared", "chunks", "trailers"],
)
def test_a_body_that_drips_has_a_limit_as_a_whole(start, more):
    with whole_front(timeout_s=60, body_timeout_s=1.0) as (front, supervisor), Client(front.port) as client:
        said = drip(client, start, more)
        assert said.startswith(b"HTTP/1.1 408 ")
        assert b'"body-cut-short"' in said
        assert not supervisor.heard(lease.Ask)


def test_a_body_that_comes_in_time_has_all_the_time_for_its_answer():
    with whole_front(body_timeout_s=0.5) as (front, supervisor), instance() as running:
        supervisor.grant(MODEL, running.address)
        with Client(front.port) as client:
            body = json.dumps({"model": MODEL, "play": "stream", "events": 5, "every_s": 0.3}).encode()
            client.socket.sendall(HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body[:9]))
            client.socket.sendall(body[9:])
            assert client.answer()[2].endswith(b"data: [DONE]\n\n")
            client.post("stream", events=5, every_s=0.3)
            assert client.answer()[2].endswith(b"data: [DONE]\n\n")


def test_a_crowd_of_slow_heads_keeps_nobody_waiting_and_is_gone_soon(front: Front):
    (worker,) = front.workers()
    before = worker.num_fds()
    with ExitStack() as stack:
        slow = [stack.enter_context(Client(front.port)) for _ in range(CROWD)]
        for client in slow:
            client.socket.sendall(HEAD)
        wait_until(lambda: worker.num_fds() >= before + CROWD // 2)
        assert_served(front)
        wait_until(lambda: worker.num_fds() <= before + 5, ENDED_WITHIN_S)
        assert all(ended(client.socket) for client in slow)


def ended(connection: socket.socket) -> bool:
    connection.settimeout(ENDED_WITHIN_S)
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def test_an_instance_that_says_nothing_is_given_up(front: Front, supervisor: FakeSupervisor):
    with Client(front.port, ENDED_WITHIN_S) as client:
        client.post("stall")
        status, error, _ = client.error()
    assert (status, error["kind"], error["type"]) == (504, "silent", "timeout_error")
    assert len(supervisor.heard(lease.Ask)) == 1, "another would be as silent"
    wait_until(lambda: supervisor.open_leases() == 0)


def test_a_stream_that_stops_ends_with_the_reason(front: Front, supervisor: FakeSupervisor):
    with Client(front.port, ENDED_WITHIN_S) as client:
        client.post("head")
        status, _, body = client.answer()
    assert status == 200
    assert json.loads(body.removeprefix(b"data: "))["error"]["kind"] == "silent"
    wait_until(lambda: supervisor.open_leases() == 0)


def test_a_stream_that_is_slow_but_steady_goes_on(front: Front):
    with Client(front.port, ENDED_WITHIN_S) as client:
        client.post("stream", events=4, every_s=TIMEOUT_S * 0.7)
        assert client.answer()[2].endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("version", [b"1.1", b"1.0"], ids=["in chunks", "to the end"])
def test_a_client_that_takes_nothing_is_cut_off(front: Front, supervisor: FakeSupervisor, version: bytes):
    """It would hold a slot of its model for ever."""
    with Client(front.port, ENDED_WITHIN_S) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        body = json.dumps({"model": MODEL, "play": "flood", "mib": 50}).encode()
        head = b"POST /v1/completions HTTP/%b\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (version, len(body))
        client.socket.sendall(head + body)
        # The one of the test before may be kept for a moment, and given back only now.
        wait_until(
            lambda: any(release.outcome == "hung-up" for release in supervisor.heard(lease.Release)),
            ENDED_WITHIN_S,
        )
        assert ended(client.socket)


def test_a_client_that_leaves_its_answer_unread_does_not_hold_others(front: Front):
    with Client(front.port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        body = json.dumps({"model": MODEL, "play": "flood", "mib": 50}).encode()
        client.socket.sendall(HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body))
        for _ in range(5):
            assert_served(front)
