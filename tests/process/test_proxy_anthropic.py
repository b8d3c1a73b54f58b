"""The front's own errors on Anthropic's routes: in their shape, wherever they arise."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from llamad.wire import lease
from llamad.wire.policy import Key
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, instance

MESSAGES = "/v1/messages"
CLOSED = lease.Policy(closed=True, keys=(Key(hashlib.sha256(b"sk-infer").hexdigest(), "key:infer"),))


def post(client: Client, play: str, path: str = MESSAGES, **headers: str) -> None:
    client.send("POST", path, json.dumps({"model": MODEL, "play": play, "stream": True}).encode(), **headers)


def error(client: Client) -> tuple[int, dict[str, Any], dict[str, str]]:
    status, headers, body = client.answer()
    document = json.loads(body)
    assert document["type"] == "error"
    assert headers["request-id"] == headers["x-request-id"]
    return status, document["error"], headers


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("POST", MESSAGES, b"{", 400, "bad-json"),
        ("POST", MESSAGES, b"{}", 400, "model-missing"),
        ("POST", f"{MESSAGES}/count_tokens", b"{}", 400, "model-missing"),
        ("POST", f"{MESSAGES}/batches", b"{}", 404, "route-not-found"),
        ("GET", MESSAGES, None, 405, "method-not-allowed"),
    ],
)
def test_requests_that_no_instance_sees(
    front: Front, method: str, path: str, body: bytes | None, status: int, kind: str
) -> None:
    with Client(front.port) as client:
        client.send(method, path, body)
        told, document, _ = error(client)
    assert (told, document["kind"], document["details"]) == (status, kind, {"error_code": kind})


@pytest.mark.parametrize(
    ("status", "kind", "word"),
    [
        (404, "model-not-found", "not_found_error"),
        (429, "queue-full", "rate_limit_error"),
        (503, "no-room", "overloaded_error"),
    ],
)
def test_refusals_of_the_supervisor(
    front: Front, supervisor: FakeSupervisor, status: int, kind: str, word: str
) -> None:
    supervisor.answers[MODEL] = lambda ask: lease.Refused(ask.lease, kind, status, "cannot", retry_after_s=4)
    with Client(front.port) as client:
        post(client, "echo")
        told, document, headers = error(client)
    assert (told, document["kind"], document["type"]) == (status, kind, word)
    assert headers["retry-after"] == "4"


def test_keys_as_its_clients_say_them(front: Front, supervisor: FakeSupervisor) -> None:
    supervisor.change(CLOSED)
    with Client(front.port) as client, instance() as running:
        supervisor.grant(MODEL, running.address)
        wait_until(lambda: asked(client, "sk-wrong") == 401)
        post(client, "echo")
        status, document, _ = error(client)
        assert (status, document["type"], document["kind"]) == (401, "authentication_error", "key-missing")
        assert asked(client, "sk-infer") == 200
        supervisor.change(lease.Policy())
        wait_until(lambda: asked(client, "sk-wrong") == 200)


def asked(client: Client, key: str) -> int:
    post(client, "echo", x_api_key=key, anthropic_version="2023-06-01")
    return client.answer()[0]


def test_a_stream_that_breaks_off_ends_with_an_error_event(front: Front, supervisor: FakeSupervisor) -> None:
    with instance() as dies, Client(front.port) as client:
        supervisor.grant(MODEL, dies.address)
        post(client, "die-after")
        status, _, body = client.answer()
    assert status == 200
    name, data = body.rstrip().rpartition(b"\n\n")[2].split(b"\n")
    assert name == b"event: error"
    document = json.loads(data.removeprefix(b"data: "))
    assert (document["type"], document["error"]["type"]) == ("error", "api_error")
    assert document["error"]["kind"] == "instance-died"


def test_a_refusal_after_words_about_the_wait_is_an_error_event(
    front: Front, supervisor: FakeSupervisor
) -> None:
    with Client(front.port) as client:
        post(client, "stream", x_llamad_progress="1")
        ask = wait_until(lambda: supervisor.heard(lease.Ask))[-1]
        supervisor.send(lease.Queued(ask.lease, 2))
        client.head()
        assert client.chunk().startswith(b": progress")
        supervisor._refused.add(ask.lease)
        supervisor.send(lease.Refused(ask.lease, "load-failed", 503, "cannot load it"))
        frame = b"".join(client.chunks())
    assert frame.startswith(b'event: error\ndata: {"type":"error","error":{')
    assert b"overloaded_error" in frame
