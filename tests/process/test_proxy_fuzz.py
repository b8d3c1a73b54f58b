"""Anything at all on the front's socket: it costs no worker its life, nobody else an answer, and no memory.

Hypothesis builds what is legal and has to pass, and what is noise; a mutator (`mutations`) works on samples of real requests
and WebSocket frames, a few dozen connections at once. LLAMAD_FUZZ_ROUNDS and LLAMAD_FUZZ_SEED make longer runs, and others.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.echo_instance import EchoInstance
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.mutations import cut, mutants
from tests.process.proxy_harness import MODEL, Client, Front, instance, whole_front

ROUNDS = int(os.environ.get("LLAMAD_FUZZ_ROUNDS", "25"))
SEED = int(os.environ.get("LLAMAD_FUZZ_SEED", "5"))
AT_ONCE = 32
# A round ends when no connection has said anything for so long.
QUIET_S = 0.03
ROUND_S_MAX = 3.0
GROWTH_BYTES_MAX = 16 << 20
CPU_REST_POLLS = 10

SOCKETS = "ws"
FAILED = re.compile(rb"HTTP/1\.[01] 500 ")

examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)


def request(method: str, target: str, body: bytes = b"", *fields: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: front", *fields]
    if body and not any(field.startswith("transfer-encoding") for field in fields):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def chat(**fields: Any) -> bytes:
    return json.dumps(
        {"model": MODEL, "messages": [{"role": "user", "content": "naïve 漢字"}], **fields}
    ).encode()


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def form() -> bytes:
    parts = [("file", b"\x00\xff" * 50), ("model", MODEL.encode())]
    return (
        b"".join(
            b'--cut\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), data)
            for name, data in parts
        )
        + b"--cut--\r\n"
    )


REQUESTS = (
    request("POST", "/v1/chat/completions", chat(), "content-type: application/json"),
    request(
        "POST",
        "/v1/chat/completions",
        chat(play="stream", events=3, stream=True),
        "x-llamad-progress: comments",
    ),
    request("POST", "/v1/completions?autoload=true", chunked(chat(), 17), "transfer-encoding: chunked"),
    request("POST", "/v1/embeddings", form(), "content-type: multipart/form-data; boundary=cut"),
    request("POST", "/v1/completions", chat(), "expect: 100-continue", "authorization: Bearer key"),
    request("POST", "/tokenize", chat(play="refuse"), "x-conversation-id: fuzz", "x-request-id: mine"),
    request("GET", "/props?model=org%2Fmodel%3AQ4"),
    request("POST", "/slots/0?model=org/model:Q4&action=erase", b"{}"),
    request("GET", "/v1/models/org%2Fmodel%3AQ4", b"", "connection: keep-alive, x-hop", "x-hop: 1"),
    request("POST", "/models/load", b'{"model": "a"}'),
    request("DELETE", "/models?model=a%2Fb"),
    request("GET", "/v1/stream?conv_id=fuzz&from=10"),
    request("GET", "/v1/stream/fuzz%3A%3Aorg%2Fmodel?from=0", b"", "x-conversation-id: other"),
    request("DELETE", "/v1/stream?conv_id=fuzz") + request("GET", "/v1/stream?conv_id=nobody&from=0"),
    request("POST", "/v1/streams/lookup", b'{"conversation_ids": ["fuzz", "b"]}'),
    request(
        "OPTIONS",
        "/v1/chat/completions",
        b"",
        "origin: http://localhost",
        "access-control-request-headers: a",
    ),
    request("HEAD", "/health") + request("GET", "/health"),
)
HTTP_TOKENS = (
    b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"\t", b"\xff", b"%", b"%00", b"?", b"#", b"/../", b"//", b"http://x",
    b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"content-length: 5\r\n",
    b"transfer-encoding: chunked\r\n", b"connection: close\r\n", b"connection: upgrade\r\nupgrade: websocket\r\n",
    b"upgrade: h2c\r\n", b"expect: 100-continue\r\n", b"0\r\n\r\n", b"ffffffff\r\n", b'"model"', b"{", b"[" * 600,
    b'\\ud800', b"1e999", b"&model=", b"&from=-1", b"x" * 9000, b"a: b\r\n" * 150, b"content-encoding: gzip\r\n",
    b"x-llamad-ticket: 1\r\n", b"x-llamad-client: key:root\r\n", b"range: bytes=0-\r\n", b"\x16\x03\x01",
)  # fmt: skip


def frame(first: int, payload: bytes) -> bytes:
    """A client's frame, with a mask that leaves the payload as it is."""
    size = len(payload)
    head = bytes([first, 0x80 | size]) if size < 126 else bytes([first, 0xFE]) + size.to_bytes(2)
    return head + bytes(4) + payload


UPGRADE = request(
    "GET", f"/echo?model={SOCKETS}", b"", "connection: Upgrade", "upgrade: websocket",
    "sec-websocket-version: 13", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-protocol: chat",
)  # fmt: skip
FRAMES = (
    frame(0x81, b"hello"),
    frame(0x82, bytes(range(256))),
    frame(0x89, b"ping") + frame(0x81, b"x"),
    frame(0x01, b"in ") + frame(0x89, b"") + frame(0x00, b"three ") + frame(0x80, b"parts"),
    frame(0x88, (1000).to_bytes(2) + b"bye"),
    frame(0x8A, b"pong nobody asked for"),
)
FRAME_TOKENS = (
    b"\x81", b"\x82", b"\x88\x80", b"\x89\xfe\x00\x7e", b"\x81\xff" + b"\xff" * 8, b"\x82\xff" + bytes(7) + b"\x05",
    b"\x81\xfe\xff\xff", b"\x00", b"\xc1", b"\xff\xfe", b"\x88\x82\0\0\0\0\x03\xed", bytes(4), b"\xed\xa0\x80",
)  # fmt: skip


class Health:
    """What a front's workers were like, to be compared with what they are like afterwards."""

    def __init__(self, front: Front, supervisor: FakeSupervisor) -> None:
        self._front = front
        self._supervisor = supervisor
        self._workers = front.workers()
        self._files = [worker.num_fds() for worker in self._workers]
        self._bytes = [worker.memory_info().rss for worker in self._workers]

    def check(self) -> None:
        """The same processes, at rest, with nothing left of what was asked of them."""
        assert self._front.workers() == self._workers, self._front.log_text()[-4000:]
        wait_until(lambda: self._supervisor.open_leases() == 0)
        for worker, files, held_bytes in zip(self._workers, self._files, self._bytes, strict=True):
            # Idle connections to instances and to the supervisor may have come.
            wait_until(lambda worker=worker, files=files: worker.num_fds() <= files + 2 * AT_ONCE)
            assert worker.memory_info().rss - held_bytes < GROWTH_BYTES_MAX
            seen: list[float] = []
            wait_until(lambda worker=worker, seen=seen: at_rest(worker, seen), 10, 0.05)
        log = self._front.log_text()
        assert "Traceback" not in log, log[-4000:]
        assert "Task exception" not in log
        assert_served(self._front)


def at_rest(process: psutil.Process, seen: list[float]) -> bool:
    seen.append(sum(process.cpu_times()[:2]))
    return len(seen) > CPU_REST_POLLS and seen[-1] - seen[-CPU_REST_POLLS] < 0.1


def assert_served(front: Front) -> None:
    with Client.of(front) as client:
        client.post("stream", events=1, every_s=0)
        assert client.answer()[2].endswith(b"data: [DONE]\n\n")


def conversation(message: lease.Where | lease.Lookup | lease.Stop, address: str) -> lease.Message:
    """There is one, `fuzz`, and whatever begins so."""
    match message:
        case lease.Lookup():
            places = [lease.Place(id, 1, False, 7, address, "secret") for id in message.conversations]
            return lease.Found(message.lease, places)
        case lease.Stop():
            return lease.Stopped(message.lease)
    if message.conversation.startswith("fuzz"):
        return lease.Granted(message.lease, 1, MODEL, address, "secret", ticket=7)
    return lease.Refused(message.lease, "conversation-not-found", 404, "cannot find it")


class Answers(dict[str, Any]):
    """A supervisor's answers, with one for whatever else a mutant names: nobody waits for a model that is not there."""

    def __contains__(self, model: object) -> bool:
        return True

    def __missing__(self, model: str) -> Any:
        return lambda ask: lease.Refused(
            ask.lease, kind="model-not-found", status=404, message=f"cannot find {model!r}"
        )


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Front, FakeSupervisor]]:
    with (
        whole_front(workers=2, max_body_bytes=1 << 20) as (front, supervisor),
        instance() as running,
        EchoInstance() as echo,
    ):
        supervisor.grant(MODEL, running.address)
        supervisor.grant(SOCKETS, echo.address)
        supervisor.answers = Answers(supervisor.answers)
        supervisor.converse = lambda message: conversation(message, running.address)
        for _ in range(20):
            assert_served(front)
        health = Health(front, supervisor)
        yield front, supervisor
        health.check()


@pytest.fixture
def front(parts) -> Front:
    return parts[0]


@pytest.fixture
def supervisor(parts) -> FakeSupervisor:
    return parts[1]


# ---- the mutator


def throw(front: Front, payloads: Sequence[tuple[bytes, Sequence[bytes]]]) -> list[bytes]:
    """What the front says to each of these: first bytes alone, then pieces. Hangs up when all is quiet."""
    said = [b""] * len(payloads)
    with selectors.DefaultSelector() as selector:
        for number, (first, pieces) in enumerate(payloads):
            connection = front.connect()
            selector.register(connection, selectors.EVENT_READ, number)
            if first:
                connection.sendall(first)
                assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
            push(connection, pieces)
        try:
            listen(selector, said)
        finally:
            for key in list(selector.get_map().values()):
                key.fileobj.close()
    return said


def push(connection: socket.socket, pieces: Sequence[bytes]) -> None:
    try:
        for piece in pieces:
            connection.sendall(piece)
    except OSError:
        pass  # It has been refused already.


def listen(selector: selectors.BaseSelector, said: list[bytes]) -> None:
    ends_at = time.monotonic() + ROUND_S_MAX
    while selector.get_map() and time.monotonic() < ends_at:
        ready = selector.select(QUIET_S)
        if not ready:
            return
        for key, _ in ready:
            data = received(key.fileobj)
            said[key.data] += data or b""
            if data is None:
                selector.unregister(key.fileobj)
                key.fileobj.close()


def received(connection: socket.socket) -> bytes | None:
    """What has come; None at the end. Of TLS, what of it has been decrypted, too: no selector tells of that."""
    connection.setblocking(False)
    data = b""
    try:
        while True:
            piece = connection.recv(65536)
            data += piece
            if not piece:
                return data or None
    except (BlockingIOError, ssl.SSLWantReadError):
        return data
    except OSError:
        return data or None


def storm(
    front: Front, first: bytes, samples: Sequence[bytes], tokens: Sequence[bytes], random: Random, rounds: int
) -> None:
    """Nothing that is said may be a 500."""
    stream = mutants(samples, tokens, random)
    for number in range(rounds):
        batch = list(islice(stream, AT_ONCE))
        answers = throw(front, [(first, cut(data, random)) for data in batch])
        for data, answer in zip(batch, answers, strict=True):
            assert not FAILED.search(answer), f"seed {SEED}, round {number}: {data!r} got {answer!r}"
        assert_served(front)


@pytest.mark.parametrize(
    ("first", "samples", "tokens"),
    [
        (b"", REQUESTS, HTTP_TOKENS),
        (UPGRADE, FRAMES, FRAME_TOKENS),
        (b"", (UPGRADE + FRAMES[0],), HTTP_TOKENS),
    ],
    ids=["requests", "frames", "upgrades"],
)
def test_mutants(
    front: Front, supervisor: FakeSupervisor, first: bytes, samples: Sequence[bytes], tokens: Sequence[bytes]
) -> None:
    """The first rounds fill what is kept (pools, caches, the allocator's arenas); from then on nothing grows."""
    random = Random(SEED)
    storm(front, first, samples, tokens, random, ROUNDS // 3)
    health = Health(front, supervisor)
    storm(front, first, samples, tokens, random, ROUNDS)
    health.check()


# ---- hypothesis: what is legal passes


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
places = st.lists(st.integers(0, 4000), max_size=5)


def pieces(data: bytes, at: list[int]) -> Iterator[bytes]:
    ends = sorted({*(place % (len(data) + 1) for place in at), len(data)})
    start = 0
    for end in ends:
        yield data[start:end]
        start = end


@examples
@given(
    before=st.dictionaries(names.filter(lambda name: name not in ("model", "play")), values, max_size=4),
    after=st.dictionaries(names.filter(lambda name: name not in ("model", "play")), values, max_size=4),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 0, 1, "\t"]),
    at=places,
)
@example(before={}, after={"\ud7ff": 1e308}, ascii_only=True, indent=None, at=[])
def test_any_json_with_a_model_arrives_as_it_was_sent(
    front: Front, before: dict[str, Any], after: dict[str, Any], ascii_only: bool, indent: Any, at: list[int]
) -> None:
    document = {**before, "model": MODEL, **after}
    body = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    with Client(front.port) as client:
        for piece in pieces(request("POST", "/v1/completions", body), at):
            client.socket.sendall(piece)
        status, _, seen = client.answer()
    assert status == 200, seen
    assert seen.endswith(b"\r\n\r\n" + body)


@examples
@given(body=st.binary(max_size=3000), sizes=st.lists(st.integers(1, 700), min_size=1, max_size=5), at=places)
def test_any_upload_in_any_chunks_arrives_whole(
    front: Front, body: bytes, sizes: list[int], at: list[int]
) -> None:
    """A form, as only that may carry any bytes."""
    boundary = b"cut-here-" + b"z" * 20
    part = b'--%b\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n'
    body = (
        part % (boundary, b"file", body)
        + part % (boundary, b"model", MODEL.encode())
        + b"--%b--\r\n" % boundary
    )
    wire, start, turn = bytearray(), 0, 0
    while start < len(body):
        piece = body[start : start + sizes[turn % len(sizes)]]
        wire += b"%x\r\n%b\r\n" % (len(piece), piece)
        start, turn = start + len(piece), turn + 1
    head = request(
        "POST", "/v1/embeddings", b"", "transfer-encoding: chunked",
        f"content-type: multipart/form-data; boundary={boundary.decode()}",
    )  # fmt: skip
    with Client(front.port) as client:
        for piece in pieces(head + wire + b"0\r\n\r\n", at):
            client.socket.sendall(piece)
        status, _, seen = client.answer()
    assert status == 200, seen
    assert seen.endswith(b"\r\n\r\n" + body)


# ---- hypothesis: noise is answered or hung up on


@examples
@given(st.binary(min_size=1, max_size=400) | st.text(max_size=200).map(str.encode))
def test_any_bytes_get_an_answer_in_http_or_none(front: Front, noise: bytes) -> None:
    (said,) = throw(front, [(b"", [noise, b"\r\n\r\n"])])
    assert not said or re.match(rb"HTTP/1\.[01] [2345]\d\d ", said)
    assert not FAILED.search(said)


@examples
@given(
    st.sampled_from(
        ["/v1/chat/completions", "/tokenize", "/models/load", "/v1/streams/lookup", "/v1/embeddings"]
    ),
    st.sampled_from(
        ["application/json", "multipart/form-data", "multipart/form-data; boundary=x", "a/b; \xff", ""]
    ),
    st.binary(max_size=300) | values.map(lambda value: json.dumps(value).encode()),
)
def test_any_body_gets_an_answer(front: Front, path: str, kind: str, body: bytes) -> None:
    head = request("POST", path, b"", f"content-length: {len(body)}").removesuffix(b"\r\n")
    head += b"content-type: " + kind.encode("latin-1") + b"\r\n\r\n"
    (said,) = throw(front, [(b"", [head, body])])
    assert not FAILED.search(said), said


@examples
@given(st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=60))
def test_any_target_gets_an_answer(front: Front, target: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        (said,) = throw(
            front,
            [
                (
                    b"",
                    [
                        f"{method} /{target} HTTP/1.1\r\nhost: f\r\ncontent-length: 0\r\n\r\n".encode(
                            "latin-1"
                        )
                    ],
                )
            ],
        )
        assert not FAILED.search(said), said
