"""Conversations at the front: what a worker says and holds when clients leave and come back."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, Instance, instance, whole_front

TICKET = 77


@pytest.fixture
def running() -> Iterator[Instance]:
    with instance() as running:
        yield running


def converse(client: Client, play: str, id: str = "c", model: str = MODEL, **fields: object) -> None:
    body = json.dumps({"model": model, "play": play, **fields}).encode()
    client.send(
        "POST", "/v1/chat/completions", body, x_conversation_id=id, x_llamad_ticket="1", x_llamad_progress="0"
    )


def granted(ask: lease.Ask | lease.Where, running: Instance) -> lease.Granted:
    return lease.Granted(ask.lease, 1, MODEL, running.address, "secret", ticket=TICKET)


def asked(supervisor: FakeSupervisor) -> lease.Ask:
    (ask,) = wait_until(lambda: supervisor.heard(lease.Ask))
    return ask


def test_the_instance_gets_the_supervisors_ticket_and_not_the_clients(
    front: Front, supervisor: FakeSupervisor, running: Instance
) -> None:
    with Client(front.port) as client:
        converse(client, "echo", "c::org/m:Q4")
        ask = asked(supervisor)
        assert (ask.conversation, ask.owner) == ("c::org/m:Q4", "")
        supervisor.send(granted(ask, running))
        _, _, body = client.answer()
        head = body.decode().lower().split("\r\n")
        assert [line for line in head if "ticket" in line] == [f"x-llamad-ticket: {TICKET}"]
        assert "x-conversation-id: c::org/m:q4" in head
    assert wait_until(lambda: supervisor.heard(lease.Release))[0].outcome == "ok"


@pytest.mark.parametrize("play", ["stream", "stall", "head"])
def test_a_client_that_leaves_detaches(
    front: Front, supervisor: FakeSupervisor, running: Instance, play: str
) -> None:
    with Client(front.port) as client:
        converse(client, play, events=10_000)
        ask = asked(supervisor)
        supervisor.send(granted(ask, running))
        wait_until(lambda: f"request {play}" in running.said)
        if play != "stall":
            assert client.head()[0] == 200
    if play == "stall":
        # Nobody knows yet whether the instance has it: the worker stays with it.
        assert not supervisor.heard(lease.Detach)
        running.process.send_signal(signal.SIGKILL)
        supervisor.send(lease.Ended(ask.lease, "instance-died", "killed"))
        again = wait_until(lambda: supervisor.heard(lease.Ask)[1:])[0]
        assert (again.ticket, again.avoid, again.conversation) == (TICKET, 1, "c")
        supervisor.send(lease.Refused(again.lease, "no", 503, "cannot"))
        supervisor._refused.add(again.lease)
    else:
        wait_until(lambda: supervisor.heard(lease.Detach) == [lease.Detach(ask.lease)])
        assert not supervisor.heard(lease.Release)


def test_a_client_that_leaves_while_it_loads_is_served_all_the_same(
    front: Front, supervisor: FakeSupervisor, running: Instance
) -> None:
    with Client(front.port) as client:
        converse(client, "stream", every_s=0.01)
        ask = asked(supervisor)
    with Client(front.port) as other:
        other.post("echo", model="plain")
        plain = wait_until(lambda: supervisor.heard(lease.Ask)[1:])[0]
    # The plain one is cancelled, so the first one's client has been seen leaving, too.
    wait_until(lambda: supervisor.heard(lease.Cancel) == [lease.Cancel(plain.lease)])
    supervisor.send(granted(ask, running))
    wait_until(lambda: "request stream" in running.said)
    wait_until(lambda: supervisor.heard(lease.Detach) == [lease.Detach(ask.lease)])


def test_a_client_that_stays_is_told_of_a_stop(front: Front, supervisor: FakeSupervisor) -> None:
    with Client(front.port) as client:
        converse(client, "echo")
        ask = asked(supervisor)
        supervisor._refused.add(ask.lease)
        supervisor.send(lease.Refused(ask.lease, "conversation-stopped", 410, "cannot go on"))
        status, error, _ = client.error()
    assert (status, error["kind"]) == (410, "conversation-stopped")


def test_following(front: Front, supervisor: FakeSupervisor, running: Instance) -> None:
    with Client(front.port) as client:
        client.send("GET", "/v1/stream?conv_id=c%3A%3Aa%2Fb%20%C3%BC&from=12")
        (where,) = wait_until(lambda: supervisor.heard(lease.Where))
        assert where == lease.Where(where.lease, "c::a/b ü")
        supervisor.send(granted(where, running))
        status, _, body = client.answer()
        assert status == 200
        head = body.decode("latin-1").split("\r\n")
        assert head[0] == "GET /v1/stream?conv_id=c%3A%3Aa%2Fb%20%C3%BC&from=12 HTTP/1.1"
        assert f"x-llamad-ticket: {TICKET}" in head


@pytest.mark.parametrize(
    ("path", "id"),
    [("c", "c"), ("c%3A%3Aa%2Fb%20%C3%BC", "c::a/b ü"), ("c::a/b", "c::a/b"), ("c?conv_id=d", "c")],
)
def test_an_id_may_be_in_the_path(
    front: Front, supervisor: FakeSupervisor, running: Instance, path: str, id: str
) -> None:
    """As llama.cpp's first clients have it."""
    path, _, query = path.partition("?")
    query = f"{query}&from=3" if query else "from=3"
    with Client(front.port) as client:
        client.send("GET", f"/v1/stream/{path}?{query}")
        (where,) = wait_until(lambda: supervisor.heard(lease.Where))
        assert where.conversation == id
        supervisor.send(granted(where, running))
        assert client.answer()[2].decode().startswith(f"GET /v1/stream?{query} HTTP/1.1\r\n")
        client.send("DELETE", f"/v1/stream/{path}")
        (stop,) = wait_until(lambda: supervisor.heard(lease.Stop))
        assert stop.conversation == id
        supervisor.send(lease.Stopped(stop.lease))
        assert client.head()[0] == 204


def test_who_waits_to_follow_may_leave(front: Front, supervisor: FakeSupervisor) -> None:
    with Client(front.port) as client:
        client.send("GET", "/v1/stream?conv_id=c")
        (where,) = wait_until(lambda: supervisor.heard(lease.Where))
    wait_until(lambda: supervisor.heard(lease.Cancel) == [lease.Cancel(where.lease)])


def test_an_unknown_one_is_not_found(front: Front, supervisor: FakeSupervisor) -> None:
    with Client(front.port) as client:
        client.send("GET", "/v1/stream?conv_id=c")
        (where,) = wait_until(lambda: supervisor.heard(lease.Where))
        supervisor._refused.add(where.lease)
        supervisor.send(lease.Refused(where.lease, "conversation-not-found", 404, "cannot find it"))
        status, error, _ = client.error()
    assert (status, error["type"]) == (404, "not_found_error")


def test_stopping(front: Front, supervisor: FakeSupervisor) -> None:
    with Client(front.port) as client:
        client.send("DELETE", "/v1/stream?conv_id=c")
        (stop,) = wait_until(lambda: supervisor.heard(lease.Stop))
        assert stop.conversation == "c"
        supervisor.send(lease.Stopped(stop.lease))
        assert client.head()[0] == 204


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("GET", "/v1/stream", "bad-query"),
        ("GET", "/v1/stream?conv_id=", "bad-query"),
        ("DELETE", "/v1/stream?from=1", "bad-query"),
        ("GET", "/v1/stream?conv_id=" + "x" * 300, "bad-conversation-id"),
        ("GET", "/v1/stream?conv_id=a%0Ab", "bad-conversation-id"),
    ],
)
def test_a_conversation_has_to_be_named(front: Front, method: str, target: str, kind: str) -> None:
    with Client(front.port) as client:
        client.send(method, target)
        status, error, _ = client.error()
    assert (status, error["kind"]) == (400, kind)


def test_an_id_that_is_none_begins_nothing(front: Front, supervisor: FakeSupervisor) -> None:
    with Client(front.port) as client:
        converse(client, "echo", "x" * 300)
        assert client.error()[1]["kind"] == "bad-conversation-id"
    assert not supervisor.heard(lease.Ask)


def lookup(client: Client, document: object) -> None:
    client.send("POST", "/v1/streams/lookup", json.dumps(document).encode())


def test_lookup_of_what_waits_and_of_what_is_lost(front: Front, supervisor: FakeSupervisor) -> None:
    with Client(front.port) as client:
        lookup(client, {"conversation_ids": ["c", "c", "", 5, "d", "x\n"]})
        (asked,) = wait_until(lambda: supervisor.heard(lease.Lookup))
        assert asked.conversations == ["c", "d"]
        places = [lease.Place("c::m", 1_700_000_000), lease.Place("d", 1_700_000_001, True, 4)]
        supervisor.send(lease.Found(asked.lease, places))
        status, _, body = client.answer()
    assert status == 200
    assert json.loads(body) == [
        {
            "conversation_id": "c::m",
            "is_done": False,
            "total_bytes": 0,
            "started_at": 1_700_000_000,
            "completed_at": 0,
        }
    ]


def test_lookup_at_an_instance_that_knows_nothing(
    front: Front, supervisor: FakeSupervisor, running: Instance
) -> None:
    with Client(front.port) as client:
        lookup(client, {"conversation_ids": ["c"]})
        (asked,) = wait_until(lambda: supervisor.heard(lease.Lookup))
        supervisor.send(
            lease.Found(asked.lease, [lease.Place("c", 5, ticket=TICKET, address=running.address, token="t")])
        )
        status, _, body = client.answer()
    assert (status, [found["is_done"] for found in json.loads(body)]) == (200, [False])


@pytest.mark.parametrize(
    "document",
    [{}, [], {"conversation_ids": "c"}, {"conversation_ids": list("x") * 2 + [str(n) for n in range(70)]}],
)
def test_a_broken_lookup(front: Front, document: object) -> None:
    with Client(front.port) as client:
        lookup(client, document)
        assert client.error()[0] == 400


def test_a_lookup_that_is_nested_too_deeply(front: Front) -> None:
    with Client(front.port) as client:
        client.send("POST", "/v1/streams/lookup", b'{"conversation_ids": ' + b"[" * 30_000)
        assert client.error()[0] == 400


def test_an_empty_lookup_asks_nobody(front: Front, supervisor: FakeSupervisor) -> None:
    with Client(front.port) as client:
        lookup(client, {"conversation_ids": []})
        assert client.answer()[2] == b"[]"
    assert not supervisor.heard(lease.Lookup)


def test_a_worker_that_stops_waits_for_its_orphans(running: Instance) -> None:
    with whole_front() as (front, supervisor):
        with Client(front.port) as client:
            converse(client, "stream", every_s=0.01)
            ask = asked(supervisor)
        front.process.send_signal(signal.SIGTERM)
        with pytest.raises(AssertionError):
            wait_until(lambda: front.process.poll() is not None, 1.5)
        supervisor.send(granted(ask, running))
        wait_until(lambda: supervisor.heard(lease.Detach) == [lease.Detach(ask.lease)])
        wait_until(lambda: front.process.poll() is not None)
