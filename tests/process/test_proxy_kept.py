"""Leases that are kept from one small request to the next, and given back when they are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, Instance, instance, whole_front


@pytest.fixture
def kept() -> Iterator[tuple[Front, FakeSupervisor, Instance]]:
    """A front whose grants may all be kept."""
    with whole_front() as (front, supervisor), instance() as running:
        grant(supervisor, running.address)
        yield front, supervisor, running


def grant(supervisor: FakeSupervisor, address: str, *, child: int = 1, keep: bool = True) -> None:
    supervisor.answers[MODEL] = lambda ask: lease.Granted(
        ask.lease, child, MODEL, address, "secret", keep=keep
    )


def asks(supervisor: FakeSupervisor) -> int:
    return len(supervisor.heard(lease.Ask))


def echo(client: Client, **fields: Any) -> None:
    client.post("echo", **fields)
    assert client.answer()[0] == 200


def test_small_requests_share_a_lease_and_give_it_back(kept):
    front, supervisor, _ = kept
    with Client(front.port) as client:
        for _ in range(300):
            echo(client)
    assert asks(supervisor) < 300
    wait_until(lambda: supervisor.open_leases() == 0, 30)
    assert len(supervisor.heard(lease.Release)) == asks(supervisor)


def test_without_leave_every_request_asks(kept):
    front, supervisor, running = kept
    grant(supervisor, running.address, keep=False)
    with Client(front.port) as client:
        for _ in range(20):
            echo(client)
    assert asks(supervisor) == 20


def test_one_lease_serves_one_request_at_a_time(kept):
    front, supervisor, _ = kept
    with Client(front.port) as first, Client(front.port) as second:
        first.post("stall")
        wait_until(lambda: asks(supervisor) == 1, 30)
        echo(second)
        assert asks(supervisor) == 2


def test_a_request_that_fails_ends_its_lease(kept):
    """Nobody is to meet a dead instance by a lease that somebody kept."""
    front, supervisor, _ = kept
    with Client(front.port) as client:
        echo(client)
        client.post("cut-plain")
        client.head()
        while client.receive():
            pass
    wait_until(lambda: supervisor.open_leases() == 0, 30)
    assert supervisor.heard(lease.Release)[-1].outcome == "died"


def test_a_head_without_its_body_is_no_hang_up(kept):
    front, supervisor, _ = kept
    with Client(front.port) as client:
        client.send("HEAD", f"/slots?model={quote(MODEL)}")
        assert client.head()[0] == 200
        wait_until(lambda: supervisor.heard(lease.Release), 30)
    assert supervisor.heard(lease.Release)[-1].outcome == "ok"


def test_a_kept_lease_on_a_child_that_died_is_followed_by_an_ask_for_another(kept):
    front, supervisor, running = kept
    with instance() as other, Client(front.port) as client:
        for _ in range(50):
            echo(client)
        running.stop()
        grant(supervisor, other.address, child=2)
        before = asks(supervisor)
        echo(client)
        assert supervisor.heard(lease.Ask)[-1].avoid in (0, 1)
        assert asks(supervisor) > before


def test_conversations_always_ask(kept):
    front, supervisor, _ = kept
    with Client(front.port) as client:
        for count in range(1, 4):
            body = b'{"model": "%b", "play": "echo"}' % MODEL.encode()
            client.send("POST", "/v1/chat/completions", body, x_conversation_id="one")
            assert client.answer()[0] == 200
            assert asks(supervisor) == count


def test_when_the_supervisor_goes_nothing_kept_is_announced(kept):
    front, supervisor, _ = kept
    with Client(front.port) as client:
        echo(client)
        supervisor.drop_workers()
        supervisor.listen()
        wait_until(lambda: len(supervisor.heard(lease.Hello)) == 2, 30)
        assert supervisor.heard(lease.Hello)[-1].held == []


def test_what_is_called_back_comes_at_once(kept):
    front, supervisor, _ = kept
    with Client(front.port) as client:
        for count in range(1, 10):
            echo(client)
            supervisor.send(lease.Recall())
            wait_until(lambda: supervisor.open_leases() == 0, 30)
            assert asks(supervisor) == count
