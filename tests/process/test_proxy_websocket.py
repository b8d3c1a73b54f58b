"""WebSockets through the front: a real client library, real workers, an instance that echoes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, ConnectionClosedOK, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from llamad.wire import lease
from llamad.wire.policy import Cors, Key
from tests.conftest import wait_until
from tests.process.echo_instance import REFUSAL, EchoInstance
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, instance, whole_front

MESSAGE_BYTES_MAX = 1 << 20
MIB = 1 << 20


@pytest.fixture(scope="module")
def front_parts() -> Iterator[tuple[Front, FakeSupervisor]]:
    with whole_front(websocket_message_bytes=MESSAGE_BYTES_MAX) as parts:
        yield parts


@pytest.fixture
def echo(supervisor: FakeSupervisor) -> Iterator[EchoInstance]:
    with EchoInstance() as echo:
        supervisor.grant(MODEL, echo.address)
        yield echo


def open_at(front: Front, path: str, **options: Any) -> ClientConnection:
    mark = "&" if "?" in path else "?"
    options = {"max_size": None, "compression": None, "open_timeout": 10, "close_timeout": 5, **options}
    return connect(f"ws://127.0.0.1:{front.port}{path}{mark}model=org%2Fmodel%3AQ4", proxy=None, **options)


def released(supervisor: FakeSupervisor) -> lease.Release:
    return wait_until(lambda: supervisor.heard(lease.Release))[-1]


# ---- messages


def test_text_binary_and_pings(front: Front, supervisor: FakeSupervisor, echo: EchoInstance) -> None:
    with open_at(front, "/echo") as client:
        for message in ("hello", "naïve 漢字 🦙", "", b"\x00\xff", b"", "x" * 70_000, b"y" * 130_000):
            client.send(message)
            assert client.recv(10) == message
        assert client.ping().wait(10)
        client.send(["in ", "three ", "parts"])
        assert client.recv(10) == "in three parts"
    (ask,) = supervisor.heard(lease.Ask)
    assert (ask.model, ask.load, ask.slot) == (MODEL, True, False)
    release = released(supervisor)
    assert (release.outcome, release.status) == ("ok", 101)
    assert release.sent_bytes > 200_000


def test_many_messages_keep_their_order(front: Front, echo: EchoInstance) -> None:
    with open_at(front, "/echo") as client:
        for number in range(2000):
            client.send(str(number))
            if number % 50 == 49:
                assert [client.recv(10) for _ in range(50)] == [
                    str(n) for n in range(number - 49, number + 1)
                ]


def test_a_large_message_does_not_hold_the_worker(front: Front, echo: EchoInstance) -> None:
    """gunicorn's own unmasking takes 0.17 s a MiB."""
    worker = front.workers()[0]
    message = os.urandom(MESSAGE_BYTES_MAX)
    with open_at(front, "/echo") as client:
        before = sum(worker.cpu_times()[:2])
        for _ in range(10):
            client.send(message)
            assert client.recv(10) == message
        assert sum(worker.cpu_times()[:2]) - before < 1.0


def test_the_bound_of_messages_from_the_client(
    front: Front, supervisor: FakeSupervisor, echo: EchoInstance
) -> None:
    with open_at(front, "/echo") as client:
        client.send(b"x" * (MESSAGE_BYTES_MAX + 1))
        with pytest.raises(ConnectionClosedError) as closed:
            client.recv(10)
    assert closed.value.rcvd.code == 1009
    wait_until(lambda: echo.ends)
    assert released(supervisor)


def test_the_bound_of_messages_from_the_instance(front: Front, echo: EchoInstance) -> None:
    with (
        open_at(front, f"/push/1/{MESSAGE_BYTES_MAX + 1}") as client,
        pytest.raises(ConnectionClosedError) as closed,
    ):
        client.recv(10)
    assert closed.value.rcvd.code == 1009
    wait_until(lambda: [code for code, _ in echo.ends] == [1009])


def settled_rss(worker: psutil.Process) -> int:
    """Memory once it stands still for half a second."""
    since, last = time.monotonic(), 0

    def stands_still() -> bool:
        nonlocal since, last
        if (now := worker.memory_info().rss) != last:
            since, last = time.monotonic(), now
        return time.monotonic() - since >= 0.5

    wait_until(stands_still, within_s=20, every_s=0.05)
    return last


def test_a_slow_client_holds_the_instance_back(front: Front, echo: EchoInstance) -> None:
    worker = front.workers()[0]
    before = worker.memory_info().rss
    with open_at(front, f"/push/100/{MESSAGE_BYTES_MAX}", max_queue=1) as client:
        assert settled_rss(worker) - before < 40 * MIB
        assert sum(len(message) for message in client) == 100 * MESSAGE_BYTES_MAX


def test_a_slow_instance_holds_the_client_back(front: Front, echo: EchoInstance) -> None:
    worker = front.workers()[0]
    before = worker.memory_info().rss
    with open_at(front, "/slow") as client:
        sent = []

        def send() -> None:
            with contextlib.suppress(ConnectionClosed):
                for _ in range(100):
                    client.send(b"x" * MESSAGE_BYTES_MAX)
                    sent.append(1)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        assert settled_rss(worker) - before < 40 * MIB
        assert len(sent) < 100
        client.socket.shutdown(socket.SHUT_RDWR)
        sender.join(10)
        assert not sender.is_alive()


# ---- the handshake


def test_the_path_passes_byte_by_byte(front: Front, echo: EchoInstance) -> None:
    with open_at(front, "/echo/a%2Fb;c=d/%E2%82%AC?q=%20+x&y"):
        pass
    assert echo.paths == ["/echo/a%2Fb;c=d/%E2%82%AC?q=%20+x&y&model=org%2Fmodel%3AQ4"]


def test_headers_pass_but_for_keys_and_hops(front: Front, echo: EchoInstance) -> None:
    headers = {
        "Authorization": "Bearer client",
        "X-Api-Key": "client",
        "X-Llamad-Ticket": "5",
        "X-Mine": "yes",
        "X-Request-Id": "abc",
        "Keep-Alive": "5",
    }
    with open_at(front, "/echo", additional_headers=headers) as client:
        assert client.response.headers["x-request-id"] == "abc"
    (seen,) = echo.headers
    assert (seen["authorization"], seen["x-mine"], seen["x-request-id"]) == ("Bearer secret", "yes", "abc")
    assert not {"x-api-key", "x-llamad-ticket", "keep-alive"} & set(seen)
    assert "client" not in str(seen.values())


@pytest.mark.parametrize(
    ("offered", "chosen"), [(["chat", "realtime"], "realtime"), (["chat"], "chat"), ([], None)]
)
def test_the_instance_chooses_the_subprotocol(
    front: Front, echo: EchoInstance, offered: list[str], chosen: str | None
) -> None:
    with open_at(front, "/echo", subprotocols=offered or None) as client:
        assert client.subprotocol == chosen


def refusal(front: Front, path: str, **options: Any) -> tuple[int, dict[str, Any], Any]:
    with pytest.raises(InvalidStatus) as refused:
        open_at(front, path, **options)
    response = refused.value.response
    return response.status_code, json.loads(response.body)["error"], response.headers


def test_a_refusal_of_the_instance_is_the_clients(
    front: Front, supervisor: FakeSupervisor, echo: EchoInstance
) -> None:
    status, error, headers = refusal(front, "/refuse")
    assert (status, error, headers["x-instance"]) == (403, REFUSAL["error"], "fake")
    assert released(supervisor).outcome == "failed"


def test_an_instance_that_speaks_no_websocket(front: Front, echo: EchoInstance) -> None:
    status, error, headers = refusal(front, "/plain")
    assert (status, error["kind"]) == (501, "no-websocket")
    assert headers["x-request-id"]


def test_a_refusal_of_the_supervisor(front: Front, supervisor: FakeSupervisor) -> None:
    supervisor.refuse(MODEL, kind="queue-full", status=429, message="cannot queue", retry_after_s=5.0)
    status, error, headers = refusal(front, "/echo")
    assert (status, error["kind"], headers["retry-after"]) == (429, "queue-full", "5")


def test_no_model(front: Front) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{front.port}/v1/realtime", proxy=None)
    assert refused.value.response.status_code == 400
    assert json.loads(refused.value.response.body)["error"]["kind"] == "model-missing"


def test_nobody_there(front: Front, supervisor: FakeSupervisor) -> None:
    supervisor.grant(MODEL, "127.0.0.1:1")
    status, error, _ = refusal(front, "/echo")
    assert (status, error["kind"]) == (502, "instance-died")
    asks = supervisor.heard(lease.Ask)
    assert [ask.avoid for ask in asks] == [0, 1]


def test_the_second_try_may_succeed(front: Front, supervisor: FakeSupervisor, echo: EchoInstance) -> None:
    supervisor.answers[MODEL] = lambda ask: lease.Granted(
        ask.lease, 2 if ask.avoid else 1, MODEL, echo.address if ask.avoid else "127.0.0.1:1", "secret"
    )
    with open_at(front, "/echo") as client:
        client.send("hello")
        assert client.recv(10) == "hello"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec_websocket_version": "12", "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ=="}, 426),
        ({"sec_websocket_version": "13", "sec_websocket_key": "short"}, 400),
        ({"sec_websocket_version": "13"}, 400),
    ],
)
def test_a_broken_handshake(front: Front, headers: dict[str, str], status: int) -> None:
    with Client(front.port) as client:
        client.send("GET", "/echo?model=a", connection="Upgrade", upgrade="websocket", **headers)
        assert client.answer()[0] == status


# ---- keys and origins


def test_keys_and_origins() -> None:
    with whole_front() as (front, supervisor), EchoInstance() as echo:
        supervisor.grant(MODEL, echo.address)
        digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"
        cors = Cors(origins=("https://good.example",))
        supervisor.send(lease.Policy(closed=True, keys=(Key(digest, "key:me"),), cors=cors))
        good = {"Authorization": "Bearer secret"}
        status, error, _ = refusal(front, "/echo")
        assert (status, error["type"]) == (401, "authentication_error")
        assert refusal(front, "/echo", additional_headers={"x-api-key": "wrong"})[0] == 401
        status, error, _ = refusal(front, "/echo", additional_headers=good, origin="https://evil.example")
        assert (status, error["kind"]) == (403, "origin-refused")
        assert not supervisor.heard(lease.Ask)
        with open_at(front, "/echo", additional_headers=good, origin="https://good.example"):
            pass
        with open_at(front, "/echo", additional_headers=good):
            pass
        assert [ask.client for ask in supervisor.heard(lease.Ask)] == ["key:me", "key:me"]


# ---- ends


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1011, 3000, 4001, 4999])
def test_the_instances_close_code_is_the_clients(
    front: Front, supervisor: FakeSupervisor, echo: EchoInstance, code: int
) -> None:
    with open_at(front, f"/close/{code}") as client, pytest.raises(ConnectionClosed) as closed:
        client.recv(10)
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (code, "as told")
    assert released(supervisor).outcome == "ok"


@pytest.mark.parametrize("code", [1000, 1001, 3000, 4444])
def test_the_clients_close_code_is_the_instances(front: Front, echo: EchoInstance, code: int) -> None:
    with open_at(front, "/echo") as client:
        client.send("hello")
        client.recv(10)
        client.close(code, "because")
    wait_until(lambda: echo.ends == [(code, "because")])


def test_what_was_sent_before_a_close_arrives(front: Front, echo: EchoInstance) -> None:
    with open_at(front, "/push/200/1000") as client:
        messages = list(client)
    assert len(messages) == 200
    assert client.close_code == 1000


@pytest.mark.parametrize("how", ["abort", "half"])
def test_a_client_that_vanishes(
    front: Front, supervisor: FakeSupervisor, echo: EchoInstance, how: str
) -> None:
    with open_at(front, "/quiet") as client:
        client.socket.shutdown(socket.SHUT_WR if how == "half" else socket.SHUT_RDWR)
        assert released(supervisor)
        wait_until(lambda: echo.ends)


def test_a_client_that_vanishes_while_its_model_loads(front: Front, supervisor: FakeSupervisor) -> None:
    with Client(front.port) as client:
        client.send(
            "GET", "/echo?model=waits", connection="Upgrade", upgrade="websocket", sec_websocket_version="13",
            sec_websocket_key="dGhlIHNhbXBsZSBub25jZQ==",
        )  # fmt: skip
        (ask,) = wait_until(lambda: supervisor.heard(lease.Ask))
    wait_until(lambda: supervisor.heard(lease.Cancel) == [lease.Cancel(ask.lease)])


def test_an_instance_that_dies_is_said_plainly(
    front: Front, supervisor: FakeSupervisor, echo: EchoInstance
) -> None:
    with open_at(front, "/die") as client:
        (ask,) = supervisor.heard(lease.Ask)
        supervisor.send(lease.Ended(ask.lease, "instance-died", "it was killed by SIGKILL " + "é" * 200))
        client.send("hello")
        with pytest.raises(ConnectionClosedError) as closed:
            client.recv(10)
    assert closed.value.rcvd.code == 1011
    assert closed.value.rcvd.reason.startswith("it was killed by SIGKILL é")
    assert released(supervisor).outcome == "died"


def test_a_silent_socket_is_closed() -> None:
    with whole_front(websocket_idle_s=0.5) as (front, supervisor), EchoInstance() as echo:
        supervisor.grant(MODEL, echo.address)
        with open_at(front, "/echo") as client:
            for _ in range(4):
                client.send("still here")
                client.recv(10)
                assert client.ping().wait(10)
            began = time.monotonic()
            with pytest.raises(ConnectionClosedOK) as closed:
                client.recv(10)
            assert 0.3 < time.monotonic() - began < 5
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1001, "no message for 0 s")
        wait_until(lambda: [code for code, _ in echo.ends] == [1001])
        wait_until(lambda: supervisor.open_leases() == 0)


def test_a_worker_that_stops_lets_those_who_talk_finish_and_closes_the_silent() -> None:
    with whole_front() as (front, supervisor), EchoInstance() as echo:
        supervisor.grant(MODEL, echo.address)
        with open_at(front, "/echo") as busy, open_at(front, "/echo") as silent:
            front.process.send_signal(signal.SIGTERM)
            closed: list[int] = []
            deadline = time.monotonic() + 20
            while not closed and time.monotonic() < deadline:
                busy.send("still here")
                assert busy.recv(10) == "still here"
                try:
                    silent.recv(0.1)
                except TimeoutError:
                    continue
                except ConnectionClosed as error:
                    closed.append(error.rcvd.code)
            assert closed == [1012]
            busy.send("and on")
            assert busy.recv(10) == "and on"
        wait_until(lambda: front.process.poll() is not None, 15)


def test_a_plain_instance_answers_an_upgrade_like_any_request(
    front: Front, supervisor: FakeSupervisor
) -> None:
    with instance() as running:
        supervisor.grant(MODEL, running.address)
        status, error, _ = refusal(front, "/v1/realtime")
        assert (status, error["kind"]) == (501, "no-websocket")
