"""The front with real workers: who comes in, what browsers hear, TLS, and request rules on the way up."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from llamad.proxy.handshake import TOLD_MAX
from llamad.wire import lease
from llamad.wire.policy import Cors, Key, Rules
from tests.certificates import write_pair
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, Instance, instance, whole_front

RULED = "ruled"
INFER = Key(hashlib.sha256(b"sk-infer").hexdigest(), "key:infer")
METERED = Key(hashlib.sha256(b"sk-metered").hexdigest(), "key:metered", metered=True)
CLOSED = lease.Policy(closed=True, keys=(INFER, METERED))
OPEN = lease.Policy()
# The first bytes of a client's first message in TLS.
HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(9)
# Long enough that the kernel cannot have taken all of it before the refusal.
BIG = 8 << 20


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Front, FakeSupervisor, Instance]]:
    with whole_front() as (front, supervisor), instance() as running:
        supervisor.grant(MODEL, running.address)
        yield front, supervisor, running


@pytest.fixture
def front(parts: tuple[Front, FakeSupervisor, Instance]) -> Iterator[Front]:
    front, supervisor, _ = parts
    yield front
    supervisor.change(OPEN)
    wait_until(lambda: supervisor.open_leases() == 0 and answers_without_key(front))


def answers_without_key(front: Front) -> bool:
    with Client(front.port) as client:
        client.send("GET", "/models")
        return client.answer()[0] == 200


@pytest.fixture
def supervisor(parts: tuple[Front, FakeSupervisor, Instance]) -> FakeSupervisor:
    return parts[1]


@pytest.fixture
def client(front: Front) -> Iterator[Client]:
    with Client(front.port) as client:
        yield client


@pytest.fixture
def closed(front: Front, supervisor: FakeSupervisor) -> FakeSupervisor:
    supervisor.change(CLOSED)
    wait_until(lambda: not answers_without_key(front))
    return supervisor


# ---- keys


def test_without_a_key_nothing_of_the_body_is_taken(closed: FakeSupervisor, front: Front):
    asked = len(closed.heard(lease.Ask))
    with Client(front.port) as client:
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
        client.socket.sendall(f"{head}content-length: {BIG}\r\n\r\n".encode())
        status, error, headers = client.error()
        assert client.receive() == b"", "what follows cannot be a request"
    assert (status, error["kind"], error["type"]) == (401, "key-missing", "authentication_error")
    assert headers["www-authenticate"] == 'Bearer realm="llamad"'
    assert len(closed.heard(lease.Ask)) == asked


def test_an_upload_without_a_key_can_read_why(closed: FakeSupervisor, front: Front):
    with Client(front.port) as client:
        client.socket.settimeout(5)
        client.send("POST", "/v1/chat/completions", b"x" * BIG, authorization="Bearer sk-wrong")
        assert client.error()[0] == 401


def test_the_supervisor_hears_whose_request_it_is_and_nobody_hears_the_key(
    closed: FakeSupervisor, client: Client
):
    body = json.dumps({"model": MODEL, "play": "echo"}).encode()
    client.send("POST", "/v1/chat/completions", body, x_api_key="sk-infer", x_llamad_client="key:manage")
    status, _, seen = client.answer()
    assert status == 200
    assert closed.heard(lease.Ask)[-1].client == "key:infer"
    assert b"sk-infer" not in seen
    assert b"x-llamad-client" not in seen
    client.send("GET", "/models", authorization="Bearer sk-infer", X_Llamad_Client="")
    request = json.loads(client.answer()[2])["request"]
    assert "x-llamad-client: key:infer\r\n" in request
    assert request.lower().count("x-llamad-client") == 1
    assert "sk-infer" not in request


def test_new_keys_count_from_the_next_request_on_and_cut_no_stream(
    closed: FakeSupervisor, front: Front, client: Client
):
    body = json.dumps({"model": MODEL, "play": "stream", "events": 40, "every_s": 0.02}).encode()
    client.send("POST", "/v1/chat/completions", body, authorization="Bearer sk-infer")
    client.head()
    assert client.chunk()
    closed.change(lease.Policy(closed=True, keys=(METERED,)))
    with Client(front.port) as other:
        wait_until(lambda: _status(other, "sk-infer") == 401)
        assert _status(other, "sk-metered") == 200
    assert b"".join(client.chunks()).endswith(b"data: [DONE]\n\n")


def _status(client: Client, key: str) -> int:
    client.send("GET", "/models", authorization=f"Bearer {key}")
    return client.answer()[0]


def test_tokens_are_counted_for_metered_keys_only(closed: FakeSupervisor, client: Client):
    for key in ("sk-infer", "sk-metered"):
        body = json.dumps({"model": MODEL, "play": "stream", "events": 5, "pad": "x" * 400}).encode()
        client.send("POST", "/v1/chat/completions", body, authorization=f"Bearer {key}")
        client.answer()
        wait_until(lambda: closed.open_leases() == 0)
        tokens = closed.heard(lease.Release)[-1].tokens
        assert tokens == (0 if key == "sk-infer" else 5 + 1 + len(body) // 4)


def test_nobody_is_served_before_the_supervisor_has_said_who_may(tmp_path: Path):
    """A worker that cannot reach the supervisor knows no key; health is all that it answers."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        FakeSupervisor(tmp_path) as supervisor,
    ):
        supervisor.drop_workers()
        front = Front(supervisor, listener)
        try:
            with Client(front.port) as client:
                client.send("GET", "/health")
                assert client.answer()[0] == 200
                client.send("GET", "/models")
                status, error, headers = client.error()
            assert (status, error["kind"], headers["retry-after"]) == (503, "supervisor-gone", "1")
        finally:
            front.stop()


# ---- browsers


def test_a_preflight_needs_neither_key_nor_model(closed: FakeSupervisor, client: Client):
    for path in ("/v1/chat/completions", "/models/load", "/no-such-route"):
        client.send(
            "OPTIONS", path, origin="https://a.example", access_control_request_method="POST",
            access_control_request_headers="authorization",
        )  # fmt: skip
        status, headers, body = client.answer()
        assert (status, body) == (200, b"")
        assert headers["access-control-allow-origin"] == "https://a.example"
        assert headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
        assert headers["access-control-allow-headers"] == "authorization"
        assert headers["access-control-allow-credentials"] == "true"
        assert headers["vary"] == "Origin"


def test_errors_are_readable_for_browsers_too(closed: FakeSupervisor, client: Client):
    client.send("GET", "/models", origin="https://a.example")
    status, _, headers = client.error()
    assert (status, headers["access-control-allow-origin"]) == (401, "https://a.example")


def test_only_named_origins(front: Front, supervisor: FakeSupervisor, client: Client):
    supervisor.change(lease.Policy(cors=Cors(origins=("https://a.example",))))
    wait_until(lambda: _allowed(client, "https://b.example") is None)
    assert _allowed(client, "https://a.example") == "https://a.example"


def _allowed(client: Client, origin: str) -> str | None:
    client.send("GET", "/health", origin=origin)
    return client.answer()[1].get("access-control-allow-origin")


def test_the_instances_own_words_to_browsers_are_dropped(client: Client):
    client.send(
        "POST", "/v1/chat/completions", json.dumps({"model": MODEL, "play": "cors"}).encode(),
        origin="https://a.example",
    )  # fmt: skip
    head = client.read_until(b"\r\n\r\n").lower()
    assert head.count(b"access-control-allow-origin") == 1
    assert b"access-control-allow-origin: https://a.example" in head
    assert b"access-control-max-age" not in head
    assert b"accept-encoding" in head, "its vary stays"
    assert b"origin" in head.partition(b"vary: ")[2].partition(b"\r\n")[0]


# ---- queue


def test_an_answer_that_waited_says_where_it_stood(supervisor: FakeSupervisor, parts: Any, client: Client):
    def queued(ask: lease.Ask) -> lease.Message:
        supervisor.workers[0].writer.write(lease.encode(lease.Queued(ask.lease, 3)))
        supervisor.workers[0].writer.write(lease.encode(lease.Queued(ask.lease, 1)))
        return lease.Granted(ask.lease, 1, "cold", parts[2].address, "secret")

    supervisor.answers["cold"] = queued
    client.post("echo", model="cold")
    assert client.answer()[1]["x-queue-position"] == "3"
    client.post("echo")
    assert "x-queue-position" not in client.answer()[1]


# ---- rules


def test_rules_change_the_body_and_its_length(supervisor: FakeSupervisor, parts: Any, client: Client):
    rules = Rules(default={"temperature": 0.2}, force={"max_tokens": 5}, remove=("user",))
    address = parts[2].address
    supervisor.answers[RULED] = lambda ask: lease.Granted(ask.lease, 1, "base", address, "secret", rules)
    body = json.dumps(
        {"model": RULED, "play": "echo", "user": "me", "max_completion_tokens": 9, "text": "ü"},
        ensure_ascii=False,
    ).encode()
    client.send("POST", "/v1/chat/completions", body, content_type="application/json")
    head, _, sent = client.answer()[2].partition(b"\r\n\r\n")
    assert json.loads(sent) == {
        "model": RULED, "play": "echo", "text": "ü", "temperature": 0.2, "max_tokens": 5,
    }  # fmt: skip
    assert f"content-length: {len(sent)}".encode() in head
    client.send("POST", "/tokenize", body, content_type="application/json")
    assert client.answer()[2].endswith(body), "what is no generation is left alone"


# ---- TLS


@contextmanager
def tls_front(folder: Path, name: str, **settings: Any) -> Iterator[tuple[Front, FakeSupervisor]]:
    cert, key = write_pair(folder, name)
    with whole_front(ssl_cert_file=str(cert), ssl_key_file=str(key), **settings) as found:
        yield found


def tls_client(port: int, folder: Path, name: str) -> Client:
    """A client that trusts what `folder` has now. Raises ssl.SSLError for another certificate."""
    client = Client(port)
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    client.socket = context.wrap_socket(client.socket, server_hostname=name)
    return client


def test_streams_over_tls_and_a_renewed_certificate(tmp_path: Path):
    with tls_front(tmp_path, "one.example") as (front, supervisor), instance() as running:
        supervisor.grant(MODEL, running.address)
        with tls_client(front.port, tmp_path, "one.example") as client:
            client.post("stream", events=60, every_s=0.02)
            assert client.head()[0] == 200
            assert client.chunk()
            os.unlink(tmp_path / "key.pem")
            supervisor.change(lease.Policy(tls="gone"))
            wait_until(lambda: "cannot use the renewed certificate" in front.log_text())
            assert _greets(front.port, tmp_path, "one.example"), "the old one stays"
            write_pair(tmp_path, "two.example")
            supervisor.change(lease.Policy(tls="renewed"))
            wait_until(lambda: _greets(front.port, tmp_path, "two.example"))
            assert b"".join(client.chunks()).endswith(b"data: [DONE]\n\n")


def _greets(port: int, folder: Path, name: str) -> bool:
    try:
        with tls_client(port, folder, name) as client:
            client.send("GET", "/health")
            return client.answer()[0] == 200
    except (ssl.SSLError, ConnectionError):
        return False


def test_what_is_refused_over_tls_can_be_read(tmp_path: Path):
    """TLS has no half to close, and a reset would overtake the refusal of an upload that goes on."""
    with tls_front(tmp_path, "one.example") as (front, supervisor):
        supervisor.change(CLOSED)
        with tls_client(front.port, tmp_path, "one.example") as client:
            wait_until(lambda: _status(client, "sk-wrong") == 401)
            client.send("POST", "/v1/chat/completions", b"x" * BIG, authorization="Bearer sk-wrong")
            assert client.error()[0] == 401


def test_a_port_with_tls_speaks_nothing_else(tmp_path: Path):
    with tls_front(tmp_path, "one.example") as (front, _), Client(front.port) as client:
        client.send("GET", "/health")
        with pytest.raises((AssertionError, ConnectionError)):
            client.head()


def test_a_handshake_has_a_time_limit(tmp_path: Path):
    with tls_front(tmp_path, "one.example", keepalive_s=1) as (front, _):
        with Client(front.port) as silent, Client(front.port) as slow:
            slow.socket.sendall(HELLO)
            assert silent.receive() == slow.receive() == b""
        assert _greets(front.port, tmp_path, "one.example")


def test_connections_count_before_their_handshake(tmp_path: Path):
    with tls_front(tmp_path, "one.example", connections_max=1) as (front, supervisor):
        with tls_client(front.port, tmp_path, "one.example") as busy, ExitStack() as stack:
            busy.send("POST", "/completion", b'{"model": "a"}')
            wait_until(lambda: supervisor.heard(lease.Ask))
            told = stack.enter_context(tls_client(front.port, tmp_path, "one.example"))
            status, error, _ = told.error()
            assert (status, error["kind"]) == (503, "too-many-connections")
        wait_until(lambda: _greets(front.port, tmp_path, "one.example"))
        crowd = [socket.create_connection(("127.0.0.1", front.port)) for _ in range(1 + TOLD_MAX)]
        with Client(front.port) as client, suppress(ConnectionError):
            client.socket.sendall(HELLO)
            assert client.receive() == b""
        for connection in crowd:
            connection.close()
        wait_until(lambda: _greets(front.port, tmp_path, "one.example"))


def test_a_certificate_that_cannot_be_used_ends_the_front(tmp_path: Path):
    cert, key = write_pair(tmp_path, "one.example")
    key.write_text("no key")
    with socket.create_server(("127.0.0.1", 0)) as listener, FakeSupervisor(tmp_path) as supervisor:
        front = Front(supervisor, listener, ssl_cert_file=str(cert), ssl_key_file=str(key))
        try:
            assert front.process.wait(10) == 3
            assert f"cannot use the certificate {cert}" in front.log_text()
        finally:
            front.stop()
