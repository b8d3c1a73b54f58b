"""The front with a real arbiter, worker and instance process: bytes pass unchanged, and errors say what is wrong."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.fake_instance import TEXT
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, Instance, instance, whole_front

MAX_BODY_BYTES = 48 << 20


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Front, FakeSupervisor, Instance]]:
    with whole_front(max_body_bytes=MAX_BODY_BYTES) as (front, supervisor), instance() as running:
        supervisor.grant(MODEL, running.address)
        yield front, supervisor, running


@pytest.fixture
def front(parts: tuple[Front, FakeSupervisor, Instance]) -> Iterator[Front]:
    front, supervisor, _ = parts
    yield front
    wait_until(lambda: supervisor.open_leases() == 0)


@pytest.fixture
def supervisor(parts: tuple[Front, FakeSupervisor, Instance]) -> FakeSupervisor:
    return parts[1]


@pytest.fixture
def client(front: Front) -> Iterator[Client]:
    with Client(front.port) as client:
        yield client


# ---- bytes


def test_request_bytes_go_up_unchanged(client: Client):
    body = json.dumps(
        {"model": MODEL, "text": TEXT, "odd": [1e3, " \t"]}, ensure_ascii=False, indent=1
    ).encode()
    target = "/v1/chat/completions?a=%2F&b=%C3%A9+x&&c"
    client.send(
        "POST", target, body, content_type="application/json; charset=utf-8", authorization="Bearer client",
        accept_encoding="gzip, zstd", x_conversation_id="c1", connection="x-hop", x_hop="1", x_request_id="mine-1",
    )  # fmt: skip
    status, headers, seen = client.answer()
    head, _, seen_body = seen.partition(b"\r\n\r\n")
    assert status == 200
    assert seen_body == body
    lines = head.decode().split("\r\n")
    assert lines[0] == f"POST {target} HTTP/1.1"
    fields = dict(line.split(": ", 1) for line in lines[1:])
    assert fields["content-type"] == "application/json; charset=utf-8"
    assert fields["authorization"] == "Bearer secret"
    assert fields["accept-encoding"] == "gzip, zstd"
    assert fields["x-conversation-id"] == "c1"
    assert fields["content-length"] == str(len(body))
    assert fields["x-request-id"] == headers["x-request-id"] == "mine-1"
    assert "x-hop" not in fields


def test_an_answer_keeps_its_length_and_loses_what_is_the_hops(client: Client):
    client.post("echo")
    _, headers, body = client.answer()
    assert headers["content-length"] == str(len(body))
    assert headers["content-type"] == "application/octet-stream"
    assert headers["x-instance"] == "fake"
    assert "keep-alive" not in headers
    assert "transfer-encoding" not in headers


def test_a_chunked_upload_arrives_whole(client: Client):
    body = json.dumps({"model": MODEL, "text": TEXT * 1000}, ensure_ascii=False).encode()
    client.send("POST", "/v1/completions", content_type="application/json", transfer_encoding="chunked")
    for start in range(0, len(body), 777):
        piece = body[start : start + 777]
        client.socket.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
    client.socket.sendall(b"0\r\n\r\n")
    status, _, seen = client.answer()
    assert status == 200
    assert seen.endswith(b"\r\n\r\n" + body)
    assert b"\r\ncontent-length: %d\r\n" % len(body) in seen


def test_a_stream_comes_chunk_for_chunk(client: Client):
    client.post("stream", events=5, every_s=0.03)
    status, headers = client.head()
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    assert headers["x-accel-buffering"] == "no"
    assert headers["cache-control"] == "no-cache"
    assert client.chunks() == [*(b"data: %d\n\n" % number for number in range(5)), b"data: [DONE]\n\n"]


def test_a_streams_head_comes_before_its_first_chunk(client: Client):
    client.post("head")
    status, headers = client.head()
    assert (status, headers["transfer-encoding"]) == (200, "chunked")
    assert client.rest == b""


def test_an_http_1_0_client_gets_a_stream_as_it_comes(client: Client):
    """nginx asks so by default. There are no chunks in 1.0: the end of the connection is the end."""
    body = json.dumps({"model": MODEL, "play": "stream", "events": 2, "every_s": 0.5}).encode()
    client.socket.sendall(
        b"POST /v1/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    status, headers = client.head()
    assert (status, client.rest) == (200, b"")
    assert "transfer-encoding" not in headers
    pieces = []
    while data := client.receive():
        pieces.append(data)
    assert pieces == [b"data: 0\n\n", b"data: 1\n\n", b"data: [DONE]\n\n"]


def test_bytes_of_a_character_may_come_one_a_packet(client: Client):
    client.post("bytes")
    client.head()
    chunks = client.chunks()
    assert b"".join(chunks).decode() == TEXT
    assert len(chunks) > len(TEXT.encode()) // 2


def test_an_instances_error_is_passed_on_as_it_is(client: Client):
    client.post("refuse")
    status, headers, body = client.answer()
    assert (status, headers["content-type"], body) == (400, "application/json", b'{"error":{"message":"no"}}')


def test_a_connection_serves_many_requests(client: Client, supervisor: FakeSupervisor):
    for play in ("echo", "stream", "echo", "refuse"):
        client.post(play)
        client.answer()
    wait_until(lambda: supervisor.open_leases() == 0)
    assert supervisor.heard(lease.Release)[-1].outcome == "ok"


def test_names_with_many_bytes_reach_the_supervisor(front: Front, supervisor: FakeSupervisor, parts):
    name = "org/模型:Q4 🦙"
    supervisor.grant(name, parts[2].address)
    with Client(front.port) as client:
        client.post("echo", model=name)
        status, _, seen = client.answer()
    assert status == 200
    assert name.encode() in seen
    assert supervisor.heard(lease.Ask)[-1].model == name


def test_an_instance_may_listen_on_a_unix_socket(front: Front, supervisor: FakeSupervisor, tmp_path: Path):
    with instance(f"unix:{tmp_path}/i") as running:
        supervisor.grant("unix", running.address)
        with Client(front.port) as client:
            client.post("stream", model="unix")
            assert client.answer()[0] == 200


def test_a_release_tells_how_it_went(client: Client, supervisor: FakeSupervisor):
    client.post("stream", events=3, every_s=0.05)
    _, _, body = client.answer()
    wait_until(lambda: supervisor.open_leases() == 0)
    release = supervisor.heard(lease.Release)[-1]
    assert (release.outcome, release.status, release.sent_bytes) == ("ok", 200, len(body))
    assert 0.15 <= release.took_s < 5


# ---- big and slow


def test_a_body_of_40_mb_passes(client: Client):
    body = json.dumps({"text": "x" * (40 << 20), "model": MODEL}).encode()
    client.send("POST", "/v1/chat/completions", body, content_type="application/json")
    status, _, seen = client.answer()
    assert status == 200
    assert seen.endswith(body)


def at_rest(process: psutil.Process, seen: list[float]) -> bool:
    """Whether a process has used no CPU over the last polls."""
    seen.append(sum(process.cpu_times()[:2]))
    return len(seen) > 10 and seen[-1] == seen[-10]


def test_a_slow_reader_holds_the_instance_back(front: Front):
    worker = front.workers()[0]
    before = worker.memory_info().rss
    with Client(front.port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.post("flood", mib=200)
        client.head()
        # Nothing is read here: the worker comes to rest with the instance held back.
        wait_until(partial(at_rest, worker, []), 20, 0.05)
        assert worker.memory_info().rss - before < 16 << 20
        total = sum(map(len, client.chunks()))
    assert total == 200 << 20
    assert worker.memory_info().rss - before < 32 << 20


def test_many_streams_at_once(front: Front):
    def one(number: int) -> bytes:
        with Client(front.port) as client:
            client.post("stream", events=20, every_s=0.01)
            return client.answer()[2]

    with ThreadPoolExecutor(16) as pool:
        bodies = list(pool.map(one, range(16)))
    assert set(bodies) == {b"".join(b"data: %d\n\n" % number for number in range(20)) + b"data: [DONE]\n\n"}


# ---- refusals


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "bad-json"),
        (b"{]", "bad-json"),
        (b"\x00" * 1000, "bad-json"),
        (b'{"x": ' + b"[" * 5000, "bad-json"),
        (b'{"messages": []}', "model-missing"),
        (b'{"model": 7}', "model-not-a-string"),
    ],
)
def test_bad_bodies_are_400_with_a_kind(client: Client, body: bytes, kind: str):
    client.send("POST", "/v1/chat/completions", body, content_type="application/json")
    status, error, _ = client.error()
    assert (status, error["kind"], error["type"]) == (400, kind, "invalid_request_error")


def test_bad_json_of_20_mb_is_refused_quickly(front: Front, client: Client):
    client.send("POST", "/v1/chat/completions", b"[" * (20 << 20), content_type="application/json")
    status, error, _ = client.error()
    assert (status, error["kind"]) == (400, "bad-json")
    assert len(error["message"]) < 300


def test_a_body_over_the_limit_is_413_before_it_is_sent(client: Client):
    client.send("POST", "/v1/chat/completions", content_length=str(MAX_BODY_BYTES + 1), expect="100-continue")
    status, error, _ = client.error()
    assert (status, error["kind"], error["max_body_bytes"]) == (413, "body-too-large", MAX_BODY_BYTES)


def test_a_client_that_sends_a_too_large_body_all_the_same_can_read_why(client: Client):
    client.send("POST", "/v1/chat/completions", b"x" * (MAX_BODY_BYTES + 1))
    status, error, _ = client.error()
    assert (status, error["kind"]) == (413, "body-too-large")
    assert client.receive() == b""


def test_a_chunked_body_over_the_limit_is_413(client: Client):
    client.send("POST", "/v1/chat/completions", transfer_encoding="chunked")
    piece = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    for _ in range((MAX_BODY_BYTES >> 20) + 1):
        client.socket.sendall(piece)
    status, error, _ = client.error()
    assert (status, error["kind"]) == (413, "body-too-large")


@pytest.mark.parametrize("path", ["/nope", "/v1/chat", "/v1/chat/completions/", "/sw.js", "/models.json"])
def test_unknown_routes_are_404(client: Client, path: str):
    client.send("GET", path)
    status, error, _ = client.error()
    assert (status, error["kind"], error["type"]) == (404, "route-not-found", "not_found_error")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", {"POST", "OPTIONS"}),
        ("POST", "/health", {"GET", "HEAD", "OPTIONS"}),
        ("DELETE", "/models/load", {"POST", "OPTIONS"}),
        ("PUT", "/v1/models", {"GET", "HEAD", "OPTIONS"}),
    ],
)
def test_wrong_methods_are_405_and_name_the_right_ones(
    client: Client, method: str, path: str, allowed: set[str]
):
    client.send(method, path)
    status, error, headers = client.error()
    assert (status, error["kind"]) == (405, "method-not-allowed")
    assert set(headers["allow"].split(", ")) == allowed


def test_other_methods_load_nothing(client: Client, supervisor: FakeSupervisor):
    asked = len(supervisor.heard(lease.Ask))
    client.send("OPTIONS", "/v1/chat/completions")
    assert client.answer()[0] == 200
    client.send("HEAD", "/health")
    assert client.head()[0] == 200
    assert len(supervisor.heard(lease.Ask)) == asked


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["header", "tls", "long"],
)
def test_what_is_no_http_gets_json_too(client: Client, raw: bytes):
    client.socket.sendall(raw)
    status, headers, body = client.answer()
    assert status in (400, 414)
    assert headers["content-type"] == "application/json"
    assert len(headers["x-request-id"]) == 32
    assert json.loads(body)["error"]["code"] == status


def test_a_refusal_of_the_supervisor_is_passed_on_with_its_numbers(
    client: Client, supervisor: FakeSupervisor
):
    supervisor.refuse(
        "full", kind="queue-full", status=429, message="cannot queue: 512 wait", retry_after_s=1.2,
        details={"waiting": 512},
    )  # fmt: skip
    client.post("echo", model="full")
    status, error, headers = client.error()
    assert (status, error["kind"], error["type"]) == (429, "queue-full", "rate_limit_error")
    assert (error["message"], error["waiting"]) == ("cannot queue: 512 wait", 512)
    assert headers["retry-after"] == "2"


# ---- the other routes


def test_health_is_answered_at_once(client: Client):
    for path in ("/health", "/v1/health"):
        client.send("GET", path)
        status, _, body = client.answer()
        assert (status, json.loads(body)) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/models", b""),
        ("GET", "/models?reload=1", b""),
        ("GET", "/v1/models", b""),
        ("GET", "/v1/models/org%2Fmodel%3AQ4_K_M", b""),
        ("GET", "/v1/models/org/model:Q4_K_M", b""),
        ("GET", "/models/%E6%A8%A1%E5%9E%8B", b""),
        ("POST", "/models/load", b'{"model": "a"}'),
        ("POST", "/models/unload", '{"model": "模型"}'.encode()),
        ("POST", "/models/reload", b""),
        ("POST", "/models", b'{"model": "a"}'),
        ("DELETE", "/models?model=a%2Fb", b""),
        ("GET", "/props", b""),
        ("GET", "/metrics", b""),
    ],
)
def test_the_supervisors_routes_are_relayed_byte_for_byte(
    client: Client, method: str, target: str, body: bytes
):
    client.send(method, target, body or None)
    status, _, answer = client.answer()
    seen = json.loads(answer)
    assert status == 200, seen
    assert seen["request"].startswith(f"{method} {target} HTTP/1.1\r\n")
    assert seen["body"] == body.decode()


@pytest.mark.parametrize("path", ["/status", "/logs", "/events", "/ps", "/reload", "/version"])
def test_the_operators_routes_are_not_public(client: Client, path: str):
    client.send("GET", path)
    assert client.error()[0] == 404


def test_the_supervisors_errors_are_passed_on(client: Client):
    client.send("GET", "/v1/models/missing")
    assert client.answer()[0] == 404


def test_reads_of_an_instance_never_load(client: Client, supervisor: FakeSupervisor):
    for target in (
        "/props?model=org%2Fmodel%3AQ4",
        "/metrics?model=org%2Fmodel%3AQ4",
        "/slots?model=org/model:Q4",
        "/lora-adapters?model=org/model:Q4",
    ):
        client.send("GET", target)
        status, _, seen = client.answer()
        assert status == 200
        assert seen.startswith(f"GET {target} HTTP/1.1\r\n".encode())
        ask = supervisor.heard(lease.Ask)[-1]
        assert (ask.model, ask.load, ask.autoload) == (MODEL, False, False)
    body = b'{"model": "org/model:Q4", "id": "chatcmpl-1", "action": "reasoning_end"}'
    client.send("POST", "/v1/chat/completions/control", body)
    assert client.answer()[0] == 200
    ask = supervisor.heard(lease.Ask)[-1]
    assert (ask.model, ask.load, ask.autoload, ask.slot) == (MODEL, False, False, False)
    client.send("POST", "/slots/3?model=org/model:Q4&action=erase", b"{}")
    assert client.answer()[0] == 200
    client.send("GET", "/slots")
    assert client.error()[1]["kind"] == "model-missing"


def test_autoload_is_passed_to_the_supervisor(client: Client, supervisor: FakeSupervisor):
    body = json.dumps({"model": MODEL}).encode()
    for query, wanted in (("", None), ("?autoload=false", False), ("?autoload=true", True)):
        client.send("POST", f"/v1/completions{query}", body)
        client.answer()
        assert supervisor.heard(lease.Ask)[-1].autoload is wanted


def test_no_secret_is_shown(front: Front, client: Client):
    client.send(
        "POST",
        "/v1/completions",
        b'{"model": "org/model:Q4", "prompt": "marker-prompt"}',
        authorization="Bearer marker-key",
    )
    client.answer()
    seen = front.log_text()
    for process in [*front.workers(), front.process]:
        seen += (
            Path(f"/proc/{process.pid}/cmdline").read_text()
            + Path(f"/proc/{process.pid}/environ").read_text()
        )
    assert "marker" not in seen
    assert "secret" not in seen


def test_titles_name_the_roles(front: Front):
    titles = [
        Path(f"/proc/{process.pid}/cmdline").read_text().strip("\0")
        for process in [front.process, *front.workers()]
    ]
    assert titles[0] == "llamad: proxy arbiter"
    assert [title.rstrip("0123456789") for title in titles[1:]] == ["llamad: proxy worker "]
