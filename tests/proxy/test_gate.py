"""The gate: every route against every kind of key, and every way to say a key."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from llamad.errors import LlamadError
from llamad.proxy.gate import CLIENT, KEY, Gate, Need, address_of, need_of
from llamad.proxy.keys import Keyring, candidates_of
from llamad.wire.lease import Policy
from llamad.wire.policy import Key


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


INFER = Key(digest("sk-infer"), "key:infer")
MANAGE = Key(digest("sk-manage"), "key:manage", manage=True)
LIMITED = Key(digest("sk-limited"), "key:limited", limited=True)
CLOSED = Policy(closed=True, keys=(INFER, MANAGE, LIMITED))


def scope(method: str, path: str, query: str = "", **headers: str) -> dict[str, Any]:
    said = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": said,
        "client": ("10.1.2.3", 4711),
    }


def refusal(policy: Policy | None, asked: dict[str, Any]) -> tuple[int, str] | None:
    gate = Gate()
    if policy is not None:
        gate.follow(policy)
    try:
        gate.admit(asked)
    except LlamadError as error:
        told = error
    else:
        return None
    assert "sk-" not in told.message
    return told.status, told.kind


NOTHING = [("GET", "/health"), ("GET", "/v1/health"), ("HEAD", "/health"), ("GET", "/health/")]
ANY_KEY = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/completion"),
    ("POST", "/tokenize"),
    ("GET", "/"),
    ("GET", "/props"),
    ("GET", "/slots"),
    ("GET", "/lora-adapters"),
    ("GET", "/models"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/load"),
    ("GET", "/models/org/x:Q4"),
    ("HEAD", "/models"),
    ("GET", "/v1/stream"),
    ("DELETE", "/v1/stream"),
    ("GET", "/no-such-route"),
    ("PUT", "/healthy"),
]
WHOLE = [("GET", "/metrics"), ("GET", "/models/sse")]
MANAGING = [
    ("POST", "/lora-adapters"),
    ("POST", "/models/load"),
    ("POST", "/models/unload"),
    ("POST", "/models/reload"),
    ("POST", "/models/load/"),
    ("POST", "//models/load"),
    ("POST", "/models"),
    ("DELETE", "/models"),
    ("PATCH", "/models/x"),
    ("POST", "/v1/models/load"),
    ("POST", "/slots/0"),
    ("GET", "/models/load"),
]


@pytest.mark.parametrize(("method", "path"), NOTHING)
def test_only_health_needs_no_key(method: str, path: str):
    assert need_of(method, path, "") is Need.NOTHING
    assert refusal(CLOSED, scope(method, path)) is None
    assert refusal(None, scope(method, path)) is None


@pytest.mark.parametrize(("method", "path"), NOTHING)
def test_an_upgrade_needs_one_there_too(method: str, path: str):
    upgrade = {**scope(method, path), "type": "websocket"}
    assert refusal(CLOSED, upgrade) == (401, "key-missing")
    assert refusal(None, upgrade) == (503, "supervisor-gone")
    assert refusal(Policy(), upgrade) is None


@pytest.mark.parametrize(
    ("needs", "routes"), [(Need.KEY, ANY_KEY), (Need.WHOLE, WHOLE), (Need.MANAGE, MANAGING)]
)
def test_every_other_route_by_key(needs: Need, routes: list[tuple[str, str]]):
    for method, path in routes:
        assert need_of(method, path, "") is needs, path

        def told(key: str = "", method: str = method, path: str = path) -> tuple[int, str] | None:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return refusal(CLOSED, scope(method, path, **headers))

        assert told() == (401, "key-missing"), path
        assert told("sk-wrong") == (401, "key-unknown"), path
        assert told("sk-manage") is None, path
        missing = (403, "scope-missing")
        assert told("sk-infer") == (missing if needs is Need.MANAGE else None), path
        assert told("sk-limited") == (None if needs is Need.KEY else missing), path
        assert refusal(Policy(), scope(method, path)) is None, path
        assert refusal(None, scope(method, path)) == (503, "supervisor-gone"), path


@pytest.mark.parametrize(
    ("query", "needs"),
    [
        ("reload=1", Need.MANAGE),
        ("reload", Need.MANAGE),
        ("%72eload=1", Need.MANAGE),
        ("a=1&reload=0", Need.MANAGE),
        ("&".join(["a"] * 100) + "&reload=1", Need.MANAGE),
        ("a=reloaded", Need.KEY),
        ("", Need.KEY),
    ],
)
def test_a_list_that_reads_the_configuration_again_manages(query: str, needs: Need):
    assert need_of("GET", "/models", query) is needs


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer sk-infer"},
        {"Authorization": "bearer   sk-infer "},
        {"authorization": "sk-infer"},
        {"x_api_key": "sk-infer"},
        {"X_Api_Key": " sk-infer"},
        {"authorization": "Basic dXNlcjpwYXNz", "x_api_key": "sk-infer"},
    ],
)
def test_ways_to_say_a_key(headers: dict[str, str]):
    asked = scope("GET", "/models", **headers)
    assert refusal(CLOSED, asked) is None
    assert asked[KEY] is not None
    assert asked[CLIENT] == "key:infer"


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", "Bearer sk-infe", "Bearer sk-infer1", "Bearer SK-INFER"]
)
def test_what_is_no_key(value: str):
    answer = refusal(CLOSED, scope("GET", "/models", authorization=value))
    assert answer is not None
    assert answer[0] == 401


def test_a_digest_is_no_key_and_a_closed_port_without_keys_stays_closed():
    assert refusal(CLOSED, scope("GET", "/models", x_api_key=INFER.digest)) == (401, "key-unknown")
    assert refusal(Policy(closed=True), scope("GET", "/models", x_api_key="")) == (401, "key-missing")


def test_candidates_are_bounded():
    assert len(candidates_of([(b"x-api-key", b"k")] * 1000)) == 4
    assert Keyring(()).find(b"") is None


def test_a_key_that_is_taken_away_opens_nothing():
    gate = Gate()
    gate.follow(CLOSED)
    gate.admit(scope("GET", "/models", x_api_key="sk-infer"))
    gate.follow(Policy(closed=True, keys=(MANAGE,)))
    with pytest.raises(LlamadError):
        gate.admit(scope("GET", "/models", x_api_key="sk-infer"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        (("10.1.2.3", 1), "", "10.1.2.3"),
        (("10.1.2.3", 1), "1.1.1.1", "10.1.2.3"),
        (("127.0.0.1", 1), "", "127.0.0.1"),
        (("127.0.0.1", 1), "6.6.6.6, 192.0.2.7", "192.0.2.7"),
        (("::1", 1), "2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        (("2001:db8:1:2:3::4", 1, 0, 0), "", "2001:db8:1:2::/64"),
        (("2001:db8:1:2::5", 1, 0, 0), "1.1.1.1", "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1, 0, 2), "", "fe80::/64"),
        (("::ffff:192.0.2.7", 1, 0, 0), "1.1.1.1", "192.0.2.7"),
        (("::ffff:127.0.0.1", 1, 0, 0), "192.0.2.8", "192.0.2.8"),
        (("::1", 1), "::ffff:192.0.2.9", "192.0.2.9"),
        (("::1", 1), "::1", "::1"),
        (None, "", "local"),
        (None, "192.0.2.7", "192.0.2.7"),
        (("127.0.0.1", 1), "key:manage", "127.0.0.1"),
        (("127.0.0.1", 1), "\xff", "127.0.0.1"),
    ],
)
def test_clients_without_keys_are_addresses(peer: tuple[str, int] | None, forwarded: str, address: str):
    headers = {"x_forwarded_for": forwarded} if forwarded else {}
    assert address_of({**scope("GET", "/", **headers), "client": peer}) == address
