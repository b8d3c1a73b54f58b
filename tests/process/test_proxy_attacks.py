"""What somebody tries who wants in: other spellings of the operators' routes, and requests that two readers read in two ways."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from llamad.wire import lease
from llamad.wire.policy import Key
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, Instance, instance, whole_front
from tests.process.test_proxy_fuzz import throw

INFER = Key(hashlib.sha256(b"sk-infer").hexdigest(), "key:infer")
CLOSED = lease.Policy(closed=True, keys=(INFER,))
KEY = "authorization: Bearer sk-infer\r\n"
WRONG = "authorization: Bearer sk-wrong\r\nx-api-key: \r\n"
AT_ONCE = 48

ORDERS = (
    "/models/load",
    "/models/unload",
    "/models/reload",
    "/models",
    "/models?model=a",
    "/slots/0?model=org%2Fmodel%3AQ4",
)
GUARDED = (
    *ORDERS,
    "/v1/models",
    "/models/a",
    "/v1/stream?conv_id=a",
    "/v1/stream/a",
    "/metrics",
    "/props",
    "/",
)


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Front, FakeSupervisor, Instance]]:
    with whole_front() as (front, supervisor), instance() as running:
        supervisor.grant(MODEL, running.address)
        supervisor.change(CLOSED)
        wait_until(lambda: statuses(front, [request("GET", "/models")]) == [401])
        yield front, supervisor, running
        log = front.log_text()
        assert "Traceback" not in log
        assert log.count("warning") < 20, "nobody without a key fills the log"


@pytest.fixture
def supervisor(parts: tuple[Front, FakeSupervisor, Instance]) -> FakeSupervisor:
    parts[1].told.clear()
    return parts[1]


@pytest.fixture
def front(parts: tuple[Front, FakeSupervisor, Instance], supervisor: FakeSupervisor) -> Front:
    return parts[0]


def request(method: str, target: str, fields: str = "") -> bytes:
    return (
        f"{method} {target} HTTP/1.1\r\nhost: x\r\n{fields}connection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    ).encode()


def said(front: Front, requests: list[bytes]) -> Iterator[bytes]:
    for start in range(0, len(requests), AT_ONCE):
        yield from throw(front, [(b"", [one]) for one in requests[start : start + AT_ONCE]])


def statuses(front: Front, requests: list[bytes]) -> list[int]:
    return [int(answer[9:12] or 0) for answer in said(front, requests)]


def spellings(target: str) -> Iterator[str]:
    """Ways to write a route that some reader on the way might take for it."""
    path, mark, query = target.partition("?")
    query = mark + query
    for start in ("", "/", "//", "/.", "/x/..", "/%2e%2e", "http://h", "https://h:1", "HTTP://u:p@h/"):
        yield start + path + query
    for end in ("/", "//", "/.", "/..", ";a=b", "%2f", "%00", "%20", "%2e", "\\", "#", "%0d%0a", "%c0%af"):
        yield path + end + query
    yield path.replace("/", "//") + query
    yield path.replace("/", "%2f") + query
    yield path.replace("/", "/%2e/") + query
    yield path.replace("o", "%6f") + query
    yield path.replace("o", "%256f") + query
    yield path.upper() + query
    yield f"{path}?x{query.replace('?', '&')}"


@pytest.mark.parametrize(
    "fields", ["", WRONG, "x-llamad-client: key:infer\r\n", "proxy-authorization: Bearer sk-infer\r\n"]
)
def test_without_a_key_no_spelling_opens_anything(front: Front, supervisor: FakeSupervisor, fields: str):
    targets = [spelling for target in GUARDED for spelling in spellings(target)]
    requests = [
        request(method, target, fields) for target in targets for method in ("GET", "POST", "DELETE", "HEAD")
    ]
    answers = dict(zip(requests, said(front, requests), strict=True))
    opened = [one for one, answer in answers.items() if answer and answer[9:12] not in (b"401", b"400")]
    assert not opened
    assert sum(map(bool, answers.values())) > len(answers) / 2
    assert not supervisor.heard(lease.Ask)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_with_a_key_for_inference_no_spelling_is_an_order(
    front: Front, supervisor: FakeSupervisor, method: str
):
    """The fake supervisor tells what reached it: nothing may."""
    fields = KEY + "x-http-method-override: POST\r\nx-llamad-client: key:root\r\n"
    requests = [request(method, spelling, fields) for target in ORDERS for spelling in spellings(target)]
    answers = dict(zip(requests, said(front, requests), strict=True))
    assert not [one for one, answer in answers.items() if b'"request"' in answer or answer[9:12] == b"200"]
    assert not supervisor.heard(lease.Ask)


@pytest.mark.parametrize(
    "query", ["reload", "reload=1", "%72eload=1", "a=b&reload=0", "reload&reload", "&&reload="]
)
@pytest.mark.parametrize("path", ["/models", "/v1/models", "//models", "/models/", "http://h/models"])
def test_no_spelling_of_a_reload_is_a_read(front: Front, path: str, query: str):
    target = f"{path}?{query}"
    assert set(statuses(front, [request(method, target, KEY) for method in ("GET", "HEAD")])) <= {403, 404}


def test_a_get_is_no_order_whatever_it_says_of_itself(front: Front):
    fields = KEY + "x-http-method-override: POST\r\nx-method-override: POST\r\n_method: POST\r\n"
    targets = ["/models/load", "/models/unload?_method=POST", "/models/reload"]
    assert set(statuses(front, [request("GET", target, fields) for target in targets])) == {403}


def test_what_is_hidden_in_a_body_is_no_request(front: Front, supervisor: FakeSupervisor):
    hidden = b"POST /models/load HTTP/1.1\r\nhost: x\r\n\r\n"
    for head in (b"GET /v1/models", b"POST /v1/completions", b"POST /health", b"HEAD /nowhere"):
        with Client(front.port) as client:
            client.socket.sendall(
                head
                + b" HTTP/1.1\r\nhost: x\r\n"
                + KEY.encode()
                + b"content-length: %d\r\n\r\n" % len(hidden)
                + hidden
            )
            client.socket.settimeout(0.3)
            answer = b""
            try:
                while piece := client.receive():
                    answer += piece
            except TimeoutError:
                pass
        assert answer.count(b"HTTP/1.1 ") == 1
    assert not supervisor.heard(lease.Ask)


# ---- one head, two meanings


LINES = (
    b"POST /v1/completions HTTP/1.1\nhost: x\ncontent-length: 2\n\n{}",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\ncontent-length: 2\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\rhost: x\r\ncontent-length: 2\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2, 2\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 0_2\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length:\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: identity\r\ncontent-length: 2\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: \x0bchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"POST /v1/completions HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\n{}\n0\n\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2;a\n\r\n{}\r\n0\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\ncontent-length: 5\r\n\r\n",
    b"GET /health HTTP/1.1\r\n\r\n",
    b"GET http://x/health HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    b"GET /health HTTP/1.1\r\nhost: a b\r\n\r\n",
    b"GET /health HTTP/1.1\r\nhost: a/b\r\n\r\n",
    b"GET /health HTTP/1.1\r\nhost: a@b\r\n\r\n",
    b"GET /health HTTP/1.1\r\nhost: \xc3\xa9\r\n\r\n",
    b"GET /health\r\n\r\n",
    b"GET /health HTTP/2.0\r\nhost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    b"get /health HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /v1/models/a b HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /v1/models/a\tb HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /v1/models/\x01 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET x:80 HTTP/1.1\r\nhost: x\r\n\r\n",
)  # fmt: skip


@pytest.mark.parametrize("raw", LINES, ids=range(len(LINES)))
def test_a_head_with_two_meanings_is_refused(front: Front, supervisor: FakeSupervisor, raw: bytes):
    (answer,) = throw(front, [(b"", [raw])])
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer
    assert not supervisor.heard(lease.Ask)


UPGRADE = (
    "GET /echo?model=org%2Fmodel%3AQ4 {version}\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    ("version", "rest"),
    [
        ("HTTP/1.0", "\r\n"),
        ("HTTP/1.1", "content-length: 5\r\n\r\nhello"),
        ("HTTP/1.1", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ],
)
def test_an_upgrade_with_a_body_is_none(front: Front, supervisor: FakeSupervisor, version: str, rest: str):
    raw = UPGRADE.format(version=version) + KEY + rest
    (answer,) = throw(front, [(b"", [raw.encode()])])
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert not supervisor.heard(lease.Ask)


@pytest.mark.parametrize("path", ["/health", "/v1/health", "//health", "/health/", "/%68ealth", "/", "/echo"])
@pytest.mark.parametrize("fields", ["", WRONG])
def test_an_upgrade_needs_a_key_where_a_read_needs_none(
    front: Front, supervisor: FakeSupervisor, path: str, fields: str
):
    """It loads its model, and holds it."""
    raw = UPGRADE.format(version="HTTP/1.1").replace("/echo", path) + fields + "\r\n"
    (answer,) = throw(front, [(b"", [raw.encode()])])
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert not supervisor.heard(lease.Ask)


def test_h2c_is_not_spoken(front: Front):
    fields = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
    (answer,) = throw(front, [(b"", [f"GET /health HTTP/1.1\r\nhost: x\r\n{fields}\r\n".encode()])])
    assert answer.startswith(b"HTTP/1.1 200 ")
