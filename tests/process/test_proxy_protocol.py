"""HTTP/1.1 as it may come on the wire: in any pieces, in all its legal forms, and in those that must not pass."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from llamad.proxy.lookup import INFERENCE_PATHS
from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, Instance, instance, whole_front

QUOTED = "org%2Fmodel%3AQ4"
BODY = json.dumps({"model": MODEL, "play": "echo", "text": "naïve 漢字 🦙"}, ensure_ascii=False).encode()
POST = b"POST /v1/completions HTTP/1.1\r\nhost: front\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
HEALTH = b"GET /health HTTP/1.1\r\nhost: front\r\n\r\n"
READS = (
    "/health",
    "/v1/health",
    "/",
    f"/props?model={QUOTED}",
    f"/slots?model={QUOTED}",
    "/models",
    "/v1/models",
)
READS += ("/props", "/metrics", f"/lora-adapters?model={QUOTED}", "/v1/models/org/model:Q4")


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Front, FakeSupervisor, Instance]]:
    with whole_front() as (front, supervisor), instance() as running:
        supervisor.grant(MODEL, running.address)
        yield front, supervisor, running
        assert "Traceback" not in front.log_text()


@pytest.fixture
def supervisor(parts) -> FakeSupervisor:
    parts[1].told.clear()
    return parts[1]


@pytest.fixture
def client(parts, supervisor: FakeSupervisor) -> Iterator[Client]:
    with Client(parts[0].port) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield client
    wait_until(lambda: supervisor.open_leases() == 0)


def echoed(client: Client) -> tuple[list[str], bytes]:
    """The request as the instance got it: the lines of its head, and its body."""
    status, _, seen = client.answer()
    assert status == 200, seen
    head, _, body = seen.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), body


def head_only(client: Client) -> tuple[int, dict[str, str]]:
    """An answer without a body, whatever its head says; the connection has to be right for the next one."""
    status, headers = client.head()
    client.socket.sendall(HEALTH)
    assert client.answer()[2] == b'{"status":"ok"}'
    return status, headers


# ---- in any pieces


def test_a_request_may_come_byte_by_byte(client: Client):
    for byte in POST:
        client.socket.sendall(bytes([byte]))
    assert echoed(client)[1] == BODY


def test_a_chunked_request_may_come_byte_by_byte(client: Client):
    head = b"POST /v1/completions HTTP/1.1\r\nhost: front\r\ntransfer-encoding: chunked\r\n\r\n"
    for byte in head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY):
        client.socket.sendall(bytes([byte]))
    assert echoed(client)[1] == BODY


def test_pipelined_requests_are_answered_in_their_order(client: Client):
    bodies = [json.dumps({"model": MODEL, "play": "echo", "number": number}).encode() for number in range(20)]
    wire = b"".join(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        + HEALTH
        for body in bodies
    )
    client.socket.sendall(wire)
    for body in bodies:
        assert echoed(client)[1] == body
        assert client.answer()[2] == b'{"status":"ok"}'


def test_pipelined_requests_may_be_cut_anywhere(client: Client):
    wire = (POST + HEALTH) * 3
    for start in range(0, len(wire), 61):
        client.socket.sendall(wire[start : start + 61])
    for _ in range(3):
        assert echoed(client)[1] == BODY
        assert client.answer()[2] == b'{"status":"ok"}'


def test_what_is_pipelined_behind_a_stream_waits_for_its_end(client: Client):
    body = json.dumps({"model": MODEL, "play": "stream", "events": 4}).encode()
    client.socket.sendall(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b%b"
        % (len(body), body, HEALTH)
    )
    assert client.answer()[2].endswith(b"data: 3\n\ndata: [DONE]\n\n")
    assert client.answer()[2] == b'{"status":"ok"}'


# ---- uploads


@pytest.mark.parametrize("sizes", [(1,), (2, 3, 5, 7, 11), (4095, 4096, 4097), (65535, 65537), (1, 1 << 20)])
def test_chunks_of_odd_sizes_arrive_as_one_body(client: Client, sizes: tuple[int, ...]):
    text = "漢" * (600 if sizes[0] < 10 and len(sizes) != 2 else 500_000)
    body = json.dumps({"model": MODEL, "text": text}, ensure_ascii=False).encode()
    wire, start, turn = bytearray(), 0, 0
    while start < len(body):
        piece = body[start : start + sizes[turn % len(sizes)]]
        wire += (
            b'%X;name="a;b"\r\n%b\r\n' % (len(piece), piece)
            if turn % 3
            else b"000%x\r\n%b\r\n" % (len(piece), piece)
        )
        start, turn = start + len(piece), turn + 1
    client.send("POST", "/v1/completions", transfer_encoding="chunked")
    client.socket.sendall(wire + b"0\r\nx-trailer: dropped\r\n\r\n")
    lines, seen = echoed(client)
    assert seen == body
    assert f"content-length: {len(body)}" in lines
    assert not any(line.startswith(("transfer-encoding", "x-trailer")) for line in lines)


def test_an_upload_may_wait_for_100_continue(client: Client):
    client.send("POST", "/v1/completions", content_length=str(len(BODY)), expect="100-continue")
    assert client.head()[0] == 100
    client.socket.sendall(BODY)
    lines, seen = echoed(client)
    assert seen == BODY
    assert not any(line.startswith("expect") for line in lines)


def test_a_chunked_upload_may_wait_for_100_continue(client: Client):
    client.send("POST", "/v1/completions", transfer_encoding="chunked", expect="100-Continue")
    assert client.head()[0] == 100
    client.socket.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))
    assert echoed(client)[1] == BODY


def test_a_client_need_not_wait_for_100_continue(client: Client):
    client.send("POST", "/v1/completions", BODY, expect="100-continue")
    status, _ = client.head()
    if status == 100:
        status, _ = client.head()
    assert status == 200


# ---- methods and versions


@pytest.mark.parametrize("target", READS)
def test_head_has_the_status_and_no_body(client: Client, supervisor: FakeSupervisor, target: str):
    client.send("HEAD", target)
    status, headers = head_only(client)
    assert status == 200
    assert headers["x-request-id"]
    assert not [ask for ask in supervisor.heard(lease.Ask) if ask.load]


@pytest.mark.parametrize("target", READS)
def test_head_says_what_get_would(client: Client, target: str):
    client.send("GET", target)
    _, got, _ = client.answer()
    client.send("HEAD", target)
    _, said = head_only(client)
    changing = {"date", "x-request-id", "content-length"}
    assert {name: said[name] for name in said.keys() - changing} == {
        name: got[name] for name in got.keys() - changing
    }


@pytest.mark.parametrize("path", [*INFERENCE_PATHS, "/v1/stream", "/v1/streams/lookup", "/models/load"])
def test_head_of_what_is_posted_is_405_and_loads_nothing(
    client: Client, supervisor: FakeSupervisor, path: str
):
    client.send("HEAD", f"{path}?model={QUOTED}")
    status, headers = head_only(client)
    assert status == 405
    assert "HEAD" not in headers["allow"]
    assert not supervisor.heard(lease.Ask)


@pytest.mark.parametrize("target", [*INFERENCE_PATHS, *READS, "/nowhere", "*"])
def test_options_is_answered_everywhere_and_asks_for_nothing(
    client: Client, supervisor: FakeSupervisor, target: str
):
    client.send("OPTIONS", target, origin="http://localhost:3000", access_control_request_method="POST")
    assert client.answer()[0] == 200
    assert not supervisor.heard(lease.Ask)


@pytest.mark.parametrize("method", ["PATCH", "PUT", "TRACE", "PROPFIND", "FROB"])
def test_other_methods_are_refused(client: Client, supervisor: FakeSupervisor, method: str):
    client.send(method, "/v1/completions", b"{}")
    assert client.error()[0] in (400, 405, 501)
    assert not supervisor.heard(lease.Ask)


def test_connect_opens_no_tunnel(client: Client, supervisor: FakeSupervisor):
    client.send("CONNECT", "localhost:22")
    assert client.answer()[0] in (400, 404, 405, 501)
    assert not supervisor.heard(lease.Ask)


def test_http_1_0_ends_with_its_answer_or_is_kept_by_request(client: Client):
    for connection in (b"keep-alive", b"close"):
        client.socket.sendall(b"GET /health HTTP/1.0\r\nconnection: %b\r\n\r\n" % connection)
        status = client.answer()[0]
        assert status == 200
    assert client.receive() == b""


def test_http_1_0_needs_no_host(client: Client):
    client.socket.sendall(POST.replace(b"HTTP/1.1\r\nhost: front", b"HTTP/1.0"))
    assert echoed(client)[1] == BODY
    assert client.receive() == b""


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1:8080",
        "[::1]:8080",
        "[fe80::1%25eth0]",
        "llama_server.example",
        "xn--bcher-kva.example:80",
    ],
)
def test_hosts_of_all_kinds_are_served(client: Client, host: str):
    client.socket.sendall(f"GET /health HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
    assert client.answer()[0] == 200


def test_connection_close_ends_after_the_answer(client: Client):
    client.send("POST", "/v1/completions", BODY, connection="close")
    assert echoed(client)[1] == BODY
    assert client.receive() == b""


# ---- targets and headers


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://front/v1/completions?a=%2F", "/v1/completions?a=%2F"),
        ("http://front:8080/v1/completions", "/v1/completions"),
        ("HTTP://FRONT/v1/completions", "/v1/completions"),
    ],
)
def test_a_target_may_be_in_absolute_form(client: Client, target: str, path: str):
    client.send("POST", target, BODY)
    lines, seen = echoed(client)
    assert lines[0] == f"POST {path} HTTP/1.1"
    assert seen == BODY


@pytest.mark.parametrize(
    "query", ["", "a", "a=b&a=c&&=", "%", "%zz", "a=%00", "x=" + "y" * 3000, "a=b?c=/d//.."]
)
def test_any_query_passes_as_it_is(client: Client, query: str):
    client.send("POST", f"/v1/completions?{query}", BODY)
    assert echoed(client)[0][0] == (
        f"POST /v1/completions?{query} HTTP/1.1" if query else "POST /v1/completions HTTP/1.1"
    )


def test_odd_but_legal_headers_pass(client: Client):
    sent = [
        b"x-empty:",
        b"x-tight:v",
        b"x-wide: \t v \t ",
        b"x-inner: a \t  b",
        b"x-latin: \xe9\xff",
        b"x-twice: 1",
        b"x-twice: 2",
        b'x-quoted: "a, \\"b\\""; c=d',
        b"!#$%&'*+-.^`|~09aZ: token",
        b"x-long: " + b"l" * 4000,
        b"X-CASE: Kept",
        b"content-type:application/json",
    ]
    head = b"\r\n".join(
        [b"POST /v1/completions HTTP/1.1", b"host: front", *sent, b"content-length: %d" % len(BODY)]
    )
    client.socket.sendall(head + b"\r\n\r\n" + BODY)
    lines, seen = echoed(client)
    assert seen == BODY
    got = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
    for line in sent:
        name, _, value = line.decode("latin-1").partition(":")
        assert (name.lower(), value.strip(" \t")) in got
    assert [value for name, value in got if name == "x-twice"] == ["1", "2"]


def test_a_header_with_an_underscore_passes(client: Client):
    client.socket.sendall(POST.replace(b"host: front", b"host: x\r\nx_under: 1"))
    assert "x_under: 1" in echoed(client)[0]


def test_many_headers_pass(client: Client):
    client.send("POST", "/v1/completions", BODY, **{f"x_{number}": "v" * 20 for number in range(80)})
    lines, _ = echoed(client)
    assert sum(line.startswith("x-") and line.endswith("v" * 20) for line in lines) == 80


def test_an_empty_line_before_a_request_is_passed_over(client: Client):
    client.socket.sendall(b"\r\n" + POST)
    assert echoed(client)[1] == BODY


# ---- what has two meanings


@pytest.mark.parametrize(
    "fields",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ncontent-length: 5",
        b"content-length: 5\r\ncontent-length: 6",
        b"content-length: 5, 6",
        b"content-length: +5",
        b"content-length: -5",
        b"content-length: 0x5",
        b"content-length: 5 5",
        b"content-length: 99999999999999999999999",
        b"transfer-encoding: gzip",
        b"transfer-encoding: chunked, gzip",
        b"transfer-encoding: chunked, chunked",
        b"transfer-encoding: xchunked",
        b"transfer-encoding : chunked",
        b"content-length : 5",
        b"x-folded: a\r\n b",
        b"x-nul: a\0b",
        b"x-return: a\rb",
        b"x bad: 1",
        b": nameless",
    ],
)
def test_framing_with_two_meanings_is_refused_and_reaches_no_instance(
    client: Client, supervisor: FakeSupervisor, fields: bytes
):
    hidden = b"0\r\n\r\nPOST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    client.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: front\r\n" + fields + b"\r\n\r\n" + hidden)
    status, headers, _ = client.answer()
    assert status in (400, 413, 501)
    assert headers.get("connection") == "close" or status == 413
    assert not supervisor.heard(lease.Ask)


@pytest.mark.parametrize(
    "chunks",
    [
        b"x\r\n",
        b"-1\r\n",
        b"5\r\nhello",
        b"5\r\nhelloo\r\n0\r\n\r\n",
        b"5 \r\nhelloX\r\n",
        b"fffffffffffffffff\r\n",
        b"\r\n",
        b"1" * 5000,
        b"5;" + b"e" * 100_000,
    ],
    ids=["word", "negative", "open", "surplus", "space", "huge", "empty", "digits", "extension"],
)
def test_broken_chunks_end_their_own_connection(
    client: Client, supervisor: FakeSupervisor, parts, chunks: bytes
):
    client.send("POST", "/v1/completions", transfer_encoding="chunked")
    client.socket.sendall(chunks)
    client.socket.shutdown(socket.SHUT_WR)
    began = time.monotonic()
    rest = b""
    while data := client.receive():
        rest += data
    assert time.monotonic() - began < 10
    assert not rest or rest.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 408 ", b"HTTP/1.1 431 "))
    assert not supervisor.heard(lease.Ask)
    with Client(parts[0].port) as other:
        other.socket.sendall(HEALTH)
        assert other.answer()[0] == 200
