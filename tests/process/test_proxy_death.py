"""What a client sees when an instance or the supervisor dies, before and after the first byte of its answer."""

from __future__ import annotations

import json

import pytest

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, instance, whole_front


def grant_in_turn(supervisor: FakeSupervisor, *addresses: str) -> None:
    """Each ask for MODEL gets the next address, as child 1, 2, ..."""
    turns = iter(enumerate(addresses, 1))

    def answer(ask: lease.Ask) -> lease.Message:
        child, address = next(turns)
        return lease.Granted(ask.lease, child, MODEL, address, "secret")

    supervisor.answers[MODEL] = answer


def ended(supervisor: FakeSupervisor, reason: str) -> None:
    """Say why, as soon as a lease is out."""
    supervisor.send(lease.Ended(supervisor.heard(lease.Ask)[-1].lease, "instance-died", reason))


def test_before_the_first_byte_another_instance_is_asked_for_once(front: Front, supervisor: FakeSupervisor):
    with instance() as dies, instance() as lives, Client(front.port) as client:
        grant_in_turn(supervisor, dies.address, lives.address)
        client.post("stall", note="the same bytes")
        wait_until(lambda: "request stall" in dies.said)
        dies.process.kill()
        wait_until(lambda: "request stall" in lives.said)
    first, second = supervisor.heard(lease.Ask)
    assert (first.avoid, second.avoid) == (0, 1)
    wait_until(lambda: len(supervisor.heard(lease.Release)) == 2)
    assert supervisor.heard(lease.Release)[0].outcome == "died"


def test_the_second_instance_gets_the_same_bytes(front: Front, supervisor: FakeSupervisor):
    with instance() as lives, Client(front.port) as client:
        grant_in_turn(supervisor, "127.0.0.1:1", lives.address)
        client.post("echo", text="naïve 漢字")
        status, _, seen = client.answer()
    assert status == 200
    assert json.loads(seen.partition(b"\r\n\r\n")[2])["text"] == "naïve 漢字"


def test_two_deaths_before_the_first_byte_are_a_502_with_the_reason(front: Front, supervisor: FakeSupervisor):
    with instance() as first, instance() as second, Client(front.port) as client:
        grant_in_turn(supervisor, first.address, second.address)
        client.post("die")
        wait_until(lambda: len(supervisor.heard(lease.Ask)) == 2 and "request die" in second.said)
        ended(supervisor, "killed by SIGKILL")
        status, error, _ = client.error()
    assert (status, error["kind"], error["type"]) == (502, "instance-died", "server_error")
    assert MODEL in error["message"]
    assert "SIGKILL" in error["message"]
    wait_until(lambda: len(supervisor.heard(lease.Release)) == 2)
    assert [release.outcome for release in supervisor.heard(lease.Release)] == ["died", "died"]


def test_a_refusal_of_the_second_ask_is_the_answer(front: Front, supervisor: FakeSupervisor):
    def answer(ask: lease.Ask) -> lease.Message:
        if not ask.avoid:
            return lease.Granted(ask.lease, 1, MODEL, "127.0.0.1:1", "secret")
        return lease.Refused(ask.lease, "model-failed", 503, "cannot load it again for 4 s", retry_after_s=4)

    supervisor.answers[MODEL] = answer
    with Client(front.port) as client:
        client.post("echo")
        status, error, headers = client.error()
    assert (status, error["kind"], headers["retry-after"]) == (503, "model-failed", "4")
    supervisor.told.clear()


@pytest.mark.parametrize("half", [False, True])
def test_after_the_first_byte_a_stream_gets_one_error_frame_and_its_end(
    front: Front, supervisor: FakeSupervisor, half: bool
):
    with instance() as dies, Client(front.port) as client:
        grant_in_turn(supervisor, dies.address)
        client.post("die-after", events=5, half=half)
        client.head()
        for number in range(5):
            assert client.chunk() == b"data: %d\n\n" % number
        if half:
            assert client.chunk() == b"data: ha"
        dies.process.wait()
        ended(supervisor, "killed by SIGKILL")
        frame = b"".join(client.chunks())
        assert client.rest == b""
    assert frame.startswith(b"\n\ndata: " if half else b"data: ")
    assert frame.endswith(b"\n\n")
    assert b"[DONE]" not in frame
    error = json.loads(frame.strip().removeprefix(b"data: "))["error"]
    assert (error["kind"], error["code"]) == ("instance-died", 502)
    assert "killed by SIGKILL" in error["message"]
    assert len(supervisor.heard(lease.Ask)) == 1, "a begun answer must not be sent again"
    wait_until(lambda: supervisor.heard(lease.Release))
    assert supervisor.heard(lease.Release)[0].outcome == "died"
    assert "SIGKILL" in front.log_text()


def test_a_stream_does_not_wait_long_for_the_reason(front: Front, supervisor: FakeSupervisor):
    with instance() as dies, Client(front.port) as client:
        grant_in_turn(supervisor, dies.address)
        client.post("die-after", events=1)
        body = client.answer()[2]
    assert b'"kind":"instance-died"' in body
    assert b"broke off its answer" in body


def test_a_plain_answer_is_cut(front: Front, supervisor: FakeSupervisor):
    with instance() as cuts, Client(front.port) as client:
        grant_in_turn(supervisor, cuts.address)
        client.post("cut-plain")
        status, headers = client.head()
        assert (status, headers["content-length"]) == (200, "100")
        rest = client.rest
        while data := client.receive():
            rest += data
        assert rest == b"{"
    wait_until(lambda: supervisor.heard(lease.Release))
    assert supervisor.heard(lease.Release)[0].outcome == "died"
    assert "Traceback" not in front.log_text()


def test_an_answer_that_is_no_http_is_a_502(front: Front, supervisor: FakeSupervisor):
    with instance() as odd, Client(front.port) as client:
        grant_in_turn(supervisor, odd.address, odd.address)
        client.post("garbage")
        status, error, _ = client.error()
    assert (status, error["kind"]) == (502, "instance-died")
    assert "no HTTP" in error["message"]


def test_no_request_lands_on_a_dead_pooled_connection(front: Front, supervisor: FakeSupervisor):
    with instance() as lives:
        with instance() as dies:
            supervisor.grant(MODEL, dies.address)
            with Client(front.port) as client:
                for _ in range(3):
                    client.post("echo")
                    assert client.answer()[0] == 200
            dies.process.kill()
            dies.process.wait()
        supervisor.grant(MODEL, lives.address)
        clients = [Client(front.port) for _ in range(20)]
        for client in clients:
            client.post("echo")
        assert [client.answer()[0] for client in clients] == [200] * 20
        for client in clients:
            client.socket.close()
    assert {ask.avoid for ask in supervisor.heard(lease.Ask)} == {0}


# ---- the supervisor


def test_a_lost_supervisor_fails_waiting_asks_and_lets_streams_run():
    with whole_front() as (front, supervisor), instance() as running:
        supervisor.grant(MODEL, running.address, child=7)
        with Client(front.port) as streams, Client(front.port) as waits, Client(front.port) as comes_late:
            streams.post("stream", events=60, every_s=0.02)
            streams.head()
            waits.post("echo", model="never")
            wait_until(lambda: len(supervisor.heard(lease.Ask)) == 2)
            stream = supervisor.heard(lease.Ask)[0]
            supervisor.drop_workers()
            status, error, headers = waits.error()
            assert (status, error["kind"], headers["retry-after"]) == (503, "supervisor-gone", "1")
            comes_late.post("echo")
            assert comes_late.error()[1]["kind"] == "supervisor-gone"
            supervisor.told.clear()
            supervisor.listen()
            (hello,) = wait_until(lambda: supervisor.heard(lease.Hello))
            assert hello.held == [lease.Held(stream.lease, 7, MODEL)]
            assert b"".join(streams.chunks()).endswith(b"data: 59\n\ndata: [DONE]\n\n")
            (release,) = wait_until(lambda: supervisor.heard(lease.Release))
            assert (release.lease, release.outcome) == (stream.lease, "ok")
            comes_late.post("echo")
            assert comes_late.answer()[0] == 200


def test_a_supervisor_that_breaks_the_protocol_is_left_and_found_again():
    with whole_front() as (front, supervisor), instance() as running:
        supervisor.grant(MODEL, running.address)
        supervisor.send_raw(b"no json\n")
        wait_until(lambda: len(supervisor.heard(lease.Hello)) == 2)
        with Client(front.port) as client:
            client.post("echo")
            assert client.answer()[0] == 200


def test_without_an_admin_socket_the_supervisors_routes_are_503():
    with whole_front() as (front, supervisor), Client(front.port) as client:
        supervisor.admin_socket.unlink()
        client.send("GET", "/v1/models")
        status, error, _ = client.error()
        assert (status, error["kind"]) == (503, "supervisor-gone")
        client.send("GET", "/health")
        assert client.answer()[0] == 200
