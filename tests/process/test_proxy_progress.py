"""What waits for a model may be seen, by those who asked to: and the price of it, which nobody else pays."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, Instance, instance


@pytest.fixture
def running() -> Iterator[Instance]:
    with instance() as running:
        yield running


def post(
    client: Client, play: str = "stream", style: str = "1", stream: object = True, **fields: object
) -> None:
    body = json.dumps({"model": MODEL, "play": play, "stream": stream, **fields}).encode()
    client.send("POST", "/v1/chat/completions", body, x_llamad_progress=style)


def asked(supervisor: FakeSupervisor) -> lease.Ask:
    return wait_until(lambda: supervisor.heard(lease.Ask))[-1]


def grant(supervisor: FakeSupervisor, ask: lease.Ask, running: Instance) -> None:
    supervisor.send(lease.Granted(ask.lease, 1, MODEL, running.address, "secret"))


def test_comments_by_default_then_the_answer_byte_for_byte(
    front: Front, supervisor: FakeSupervisor, running: Instance
) -> None:
    with Client(front.port) as client:
        post(client)
        ask = asked(supervisor)
        assert ask.progress
        supervisor.send(lease.Queued(ask.lease, 2))
        status, headers = client.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert (headers["x-accel-buffering"], headers["cache-control"]) == ("no", "no-cache")
        assert client.chunk() == b': progress {"queued":2}\n\n'
        supervisor.send(lease.Progress(ask.lease, 0.5))
        assert client.chunk() == b': progress {"loading":0.5}\n\n'
        grant(supervisor, ask, running)
        events = b"".join(b"data: %d\n\n" % number for number in range(5))
        assert b"".join(client.chunks()) == events + b"data: [DONE]\n\n"
    assert wait_until(lambda: supervisor.heard(lease.Release))[0].outcome == "ok"


def test_events_for_those_who_read_them(front: Front, supervisor: FakeSupervisor, running: Instance) -> None:
    with Client(front.port) as client:
        post(client, style="events")
        ask = asked(supervisor)
        supervisor.send(lease.Progress(ask.lease, 0.25))
        client.head()
        assert client.chunk() == b'event: progress\ndata: {"loading":0.25}\n\n'
        grant(supervisor, ask, running)
        client.chunks()


def test_small_steps_are_not_told(front: Front, supervisor: FakeSupervisor, running: Instance) -> None:
    with Client(front.port) as client:
        post(client)
        ask = asked(supervisor)
        for thousandth in range(1001):
            supervisor.send(lease.Progress(ask.lease, thousandth / 1000))
        client.head()
        grant(supervisor, ask, running)
        body = b"".join(client.chunks())
    assert 1 <= body.count(b": progress") <= 102


def test_a_refusal_before_any_wait_has_its_status(front: Front, supervisor: FakeSupervisor) -> None:
    supervisor.refuse(MODEL, kind="model-not-found", status=404, message="cannot find it")
    with Client(front.port) as client:
        post(client)
        assert client.error()[:1] == (404,)


def test_a_refusal_after_a_wait_is_a_frame_without_an_end_marker(
    front: Front, supervisor: FakeSupervisor
) -> None:
    with Client(front.port) as client:
        post(client)
        ask = asked(supervisor)
        supervisor.send(lease.Queued(ask.lease, 1))
        assert client.head()[0] == 200
        client.chunk()
        supervisor._refused.add(ask.lease)
        supervisor.send(lease.Refused(ask.lease, "load-failed", 503, "cannot load it", 5.0))
        (frame,) = client.chunks()
    assert json.loads(frame.removeprefix(b"data: "))["error"]["kind"] == "load-failed"


def test_a_refusal_by_the_instance_is_a_frame_too(
    front: Front, supervisor: FakeSupervisor, running: Instance
) -> None:
    with Client(front.port) as client:
        post(client, "refuse")
        ask = asked(supervisor)
        supervisor.send(lease.Queued(ask.lease, 1))
        client.head()
        grant(supervisor, ask, running)
        frames = b"".join(client.chunks())
    assert frames.endswith(b'data: {"error":{"message":"no"}}\n\n')


def test_no_wait_no_words(front: Front, supervisor: FakeSupervisor, running: Instance) -> None:
    supervisor.grant(MODEL, running.address)
    with Client(front.port) as client:
        post(client)
        _, headers, body = client.answer()
    assert headers["x-instance"] == "fake"
    assert body.startswith(b"data: 0\n\n")


@pytest.mark.parametrize(
    ("style", "stream"), [("1", False), ("1", None), ("0", True), ("", True), ("off", True)]
)
def test_without_opt_in_or_stream_the_status_stays_open(
    front: Front, supervisor: FakeSupervisor, style: str, stream: object
) -> None:
    with Client(front.port) as client:
        post(client, style=style, stream=stream)
        ask = asked(supervisor)
        assert not ask.progress
        supervisor.send(lease.Queued(ask.lease, 1))
        supervisor._refused.add(ask.lease)
        supervisor.send(lease.Refused(ask.lease, "load-failed", 503, "cannot load it"))
        assert client.error()[0] == 503


def test_an_unknown_style(front: Front) -> None:
    with Client(front.port) as client:
        post(client, style="loud")
        assert client.error()[1]["kind"] == "bad-header"


@pytest.mark.parametrize("begun", [True, False])
def test_a_client_that_leaves_is_noticed(front: Front, supervisor: FakeSupervisor, begun: bool) -> None:
    with Client(front.port) as client:
        post(client)
        ask = asked(supervisor)
        if begun:
            supervisor.send(lease.Queued(ask.lease, 1))
            client.head()
    wait_until(lambda: supervisor.heard(lease.Cancel) == [lease.Cancel(ask.lease)])


def test_a_conversation_with_progress_outlives_its_client(
    front: Front, supervisor: FakeSupervisor, running: Instance
) -> None:
    body = json.dumps({"model": MODEL, "play": "stream", "stream": True}).encode()
    with Client(front.port) as client:
        client.send("POST", "/v1/chat/completions", body, x_llamad_progress="1", x_conversation_id="c")
        ask = asked(supervisor)
        supervisor.send(lease.Queued(ask.lease, 1))
        client.head()
        client.chunk()
    grant(supervisor, ask, running)
    wait_until(lambda: supervisor.heard(lease.Detach) == [lease.Detach(ask.lease)])
