"""What browsers are told, for each setting and origin."""

from __future__ import annotations

import pytest

from llamad.proxy.cors import answer_headers, preflight_headers
from llamad.wire.policy import Cors

ANY = Cors()
BARE = Cors(credentials=False)
LOCAL = Cors(origins=("localhost",))
LIST = Cors(origins=("https://a.example", "https://b.example:8443"))


@pytest.mark.parametrize(
    ("cors", "origin", "allowed", "varies"),
    [
        (ANY, "https://evil.example", "https://evil.example", True),
        (ANY, "", None, True),
        (ANY, "null", "null", True),
        (BARE, "https://evil.example", "*", False),
        (BARE, "", "*", False),
        (LOCAL, "http://localhost:3000", "http://localhost:3000", True),
        (LOCAL, "https://127.0.0.1", "https://127.0.0.1", True),
        (LOCAL, "http://[::1]:80", "http://[::1]:80", True),
        (LOCAL, "http://localhost.evil.example", None, True),
        (LOCAL, "http://[::1", None, True),
        (LIST, "https://b.example:8443", "https://b.example:8443", True),
        (LIST, "https://b.example", None, True),
        (LIST, "https://a.example\r\nx: 1", None, True),
    ],
)
def test_each_answer_names_one_origin_or_none(cors: Cors, origin: str, allowed: str | None, varies: bool):
    said = answer_headers(cors, [(b"Origin", origin.encode())] if origin else [])
    names = [name for name, _ in said]
    assert len(names) == len(set(names))
    assert dict(said).get("access-control-allow-origin") == allowed
    assert ("vary" in names) is varies
    assert dict(said).get("access-control-allow-credentials") == (
        "true" if allowed and cors.credentials else None
    )


def test_a_preflight_says_methods_and_headers():
    assert preflight_headers(ANY, []) == [
        ("access-control-allow-methods", "GET, POST, DELETE, OPTIONS"),
        ("access-control-allow-headers", "*"),
    ]
    wished = [(b"access-control-request-headers", b"authorization, x-conversation-id")]
    assert preflight_headers(ANY, wished)[1][1] == "authorization, x-conversation-id"
    named = Cors(methods=("GET",), headers=("authorization", "x-a"))
    assert preflight_headers(named, wished) == [
        ("access-control-allow-methods", "GET"),
        ("access-control-allow-headers", "authorization, x-a"),
    ]
