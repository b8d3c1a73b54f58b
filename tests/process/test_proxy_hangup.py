"""A client that leaves is noticed in every phase: its instance is hung up within a tenth of a second, its lease ends once."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial

import pytest

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, Instance, instance, whole_front

# The promise is 0.1 s; a machine that runs other tests beside this one may be late.
SEEN_WITHIN_S = 1.0


@pytest.fixture
def supervisor(supervisor: FakeSupervisor) -> Iterator[FakeSupervisor]:
    yield supervisor
    wait_until(lambda: supervisor.open_leases() == 0)
    over = [message.lease for message in supervisor.told if isinstance(message, lease.Release | lease.Cancel)]
    assert len(over) == len(set(over)), "a lease ended twice"


@pytest.fixture
def running(supervisor: FakeSupervisor) -> Iterator[Instance]:
    with instance() as running:
        supervisor.grant(MODEL, running.address)
        yield running


def leave(client: Client, how: str) -> None:
    """`close`: FIN; `reset`: RST; `half`: only our direction, which nobody who wants an answer does."""
    if how == "reset":
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        client.socket.shutdown(socket.SHUT_WR)
    else:
        client.socket.close()


@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_while_queued(front: Front, supervisor: FakeSupervisor, how: str):
    with Client(front.port) as client:
        client.post("echo", model="waits")
        (ask,) = wait_until(lambda: supervisor.heard(lease.Ask))
        supervisor.send(lease.Queued(ask.lease, 1))
        assert not supervisor.heard(lease.Cancel)
        left = time.monotonic()
        leave(client, how)
        wait_until(lambda: supervisor.heard(lease.Cancel), every_s=0.002)
        assert time.monotonic() - left < SEEN_WITHIN_S
    assert supervisor.heard(lease.Cancel) == [lease.Cancel(ask.lease)]
    assert not supervisor.heard(lease.Release)


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("play", ["stall", "head", "stream"])
def test_once_granted(front: Front, supervisor: FakeSupervisor, running: Instance, play: str, how: str):
    with Client(front.port) as client:
        client.post(play, events=10_000)
        wait_until(lambda: f"request {play}" in running.said)
        if play == "stream":
            client.head()
            assert client.chunk() == b"data: 0\n\n"
        left = time.monotonic()
        leave(client, how)
        seen = wait_until(lambda: running.gone_at(play), every_s=0.005)
    assert seen - left < SEEN_WITHIN_S
    (release,) = wait_until(lambda: supervisor.heard(lease.Release))
    assert release.outcome == "hung-up"
    assert (release.sent_bytes > 0) is (play == "stream")


def test_while_sending_its_body(front: Front, supervisor: FakeSupervisor, running: Instance):
    body = json.dumps({"model": MODEL}).encode()
    for framing in ({"content_length": "1000000"}, {"transfer_encoding": "chunked"}):
        with Client(front.port) as client:
            client.send("POST", "/v1/completions", **framing)
            client.socket.sendall(b"%x\r\n%b\r\n" % (len(body), body))
    with Client(front.port) as client:
        client.post("echo")
        client.answer()
    wait_until(lambda: supervisor.open_leases() == 0)
    assert len(supervisor.heard(lease.Ask)) == 1, "a cut upload was relayed"


def test_a_body_that_stalls_ends_with_408():
    with whole_front(timeout_s=1) as (front, supervisor):
        for framing in ({"content_length": "100"}, {"transfer_encoding": "chunked"}):
            with Client(front.port) as client:
                client.send("POST", "/v1/completions", **framing)
                status, error, _ = client.error()
                assert (status, error["kind"]) == (408, "body-cut-short")
            with Client(front.port) as client:
                client.send("POST", "/v1/completions", **framing)
                client.socket.sendall(b"1\r\n{\r\n")
                status, error, _ = client.error()
                assert (status, error["kind"]) == (408, "body-cut-short")
        assert not supervisor.heard(lease.Ask)


def nth_ask(supervisor: FakeSupervisor, number: int) -> lease.Ask | None:
    asks = supervisor.heard(lease.Ask)
    return asks[number] if number < len(asks) else None


def test_a_grant_that_crosses_a_hang_up_is_given_back(
    front: Front, supervisor: FakeSupervisor, running: Instance
):
    """Whatever the order in which the worker sees the two, the supervisor hears of an end, and once."""
    for asked in range(30):
        with Client(front.port) as client:
            client.post("stall", model="by hand")
            ask = wait_until(partial(nth_ask, supervisor, asked), every_s=0.001)
            client.socket.close()
            supervisor.send(lease.Granted(ask.lease, 1, "by hand", running.address, "secret"))
    wait_until(lambda: supervisor.open_leases() == 0)
    assert len(supervisor.heard(lease.Ask)) == 30


def test_of_five_queued_only_the_one_that_stays_runs(
    front: Front, supervisor: FakeSupervisor, running: Instance
):
    clients = [Client(front.port) for _ in range(5)]
    for client in clients:
        client.post("stream", model="one slot")
    wait_until(lambda: len(supervisor.heard(lease.Ask)) == 5)
    for client in clients[:4]:
        client.socket.close()
    wait_until(lambda: len(supervisor.heard(lease.Cancel)) == 4)
    cancelled = {message.lease for message in supervisor.heard(lease.Cancel)}
    (left,) = {ask.lease for ask in supervisor.heard(lease.Ask)} - cancelled
    supervisor.send(lease.Granted(left, 1, "one slot", running.address, "secret"))
    assert clients[4].answer()[0] == 200
    clients[4].socket.close()
    assert running.said.count("request stream") == 1
