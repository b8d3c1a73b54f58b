"""What of a head goes on, in both directions."""

from __future__ import annotations

from llamad.proxy.heads import answer_headers, request_head, request_id_of, target_of


def test_a_request_keeps_what_is_the_clients_and_loses_what_is_the_hops():
    head = request_head(
        "POST",
        b"/v1/models/a%2Fb?x=%20",
        [
            (b"host", b"front"),
            (b"connection", b"keep-alive, X-Hop"),
            (b"x-hop", b"1"),
            (b"transfer-encoding", b"chunked"),
            (b"content-length", b"999"),
            (b"expect", b"100-continue"),
            (b"authorization", b"Bearer client"),
            (b"upgrade", b"h2c"),
            (b"te", b"trailers"),
            (b"accept-encoding", b"gzip, zstd"),
            (b"x-conversation-id", b"c"),
            (b"x-twice", b"1"),
            (b"x-twice", b"\xe9"),
        ],
        host="127.0.0.1:1",
        authorization=b"Bearer instance",
        body_bytes=3,
        request_id="id",
    )
    assert head == (
        b"POST /v1/models/a%2Fb?x=%20 HTTP/1.1\r\nhost: 127.0.0.1:1\r\n"
        b"accept-encoding: gzip, zstd\r\nx-conversation-id: c\r\nx-twice: 1\r\nx-twice: \xe9\r\n"
        b"authorization: Bearer instance\r\ncontent-length: 3\r\nx-request-id: id\r\n\r\n"
    )


def test_a_get_has_no_length_and_an_empty_post_has_one():
    common = {"host": "h", "authorization": None, "body_bytes": 0, "request_id": "i"}
    assert b"content-length" not in request_head("GET", b"/", [], **common)
    assert b"content-length: 0\r\n" in request_head("POST", b"/", [], **common)


def test_an_answer_keeps_its_length_and_coding():
    assert answer_headers(
        [
            (b"Content-Type", b"text/plain"),
            (b"Content-Length", b"5"),
            (b"Content-Encoding", b"zstd"),
            (b"Connection", b"close, x-hop"),
            (b"X-Hop", b"1"),
            (b"Keep-Alive", b"timeout=5"),
            (b"Transfer-Encoding", b"chunked"),
            (b"X-Request-Id", b"theirs"),
        ]
    ) == [("Content-Type", "text/plain"), ("Content-Length", "5"), ("Content-Encoding", "zstd")]


def test_request_ids():
    assert request_id_of("client-1/α".encode().decode("latin-1")) != "client-1/α"
    assert request_id_of("client-1") == "client-1"
    assert request_id_of("x" * 129) != "x" * 129
    assert request_id_of("two words") != "two words"
    assert request_id_of(None) != request_id_of(None)


def test_target():
    assert target_of(b"/a", b"") == b"/a"
    assert target_of(b"/a", b"b=%2F&c") == b"/a?b=%2F&c"
