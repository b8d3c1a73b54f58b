"""The admin socket's HTTP, sans IO: every split of the bytes, every bound, and what follows an answer."""

from __future__ import annotations

import h11
import pytest

from llamad.errors import RequestError
from llamad.wire.admin import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    PIPELINED_BYTES_MAX,
    Request,
    ServerConnection,
    json_bytes,
)

POST = (
    b"POST /models/load?wait=1&name=a%2Fb HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n"
    + b'{"model":"a"}'
)
GET = b"GET /models/a%2Fb HTTP/1.1\r\nHost: x\r\n\r\n"


def ask(connection: ServerConnection, data: bytes) -> Request | None:
    connection.receive(data)
    return connection.next_request()


def test_a_request_with_a_body() -> None:
    request = ask(ServerConnection(), POST)
    assert request is not None
    assert (request.method, request.path) == ("POST", "/models/load")
    assert request.query == {"wait": "1", "name": "a/b"}
    assert request.document() == {"model": "a"}
    assert request.wants("wait")
    assert not request.wants("follow")


@pytest.mark.parametrize("cut", range(1, len(POST + GET)))
def test_two_requests_split_at_any_byte(cut: int) -> None:
    connection, seen = ServerConnection(), []
    data = POST + GET
    for piece in (data[:cut], data[cut:]):
        connection.receive(piece)
        while (request := connection.next_request()) is not None:
            seen.append(request.path)
            connection.answer(200, [], b"ok")
    assert seen == ["/models/load", "/models/a%2Fb"]


def test_one_byte_at_a_time() -> None:
    connection, seen = ServerConnection(), []
    for index in range(len(POST)):
        connection.receive(POST[index : index + 1])
        if (request := connection.next_request()) is not None:
            seen.append(request)
    assert [request.document() for request in seen] == [{"model": "a"}]


def test_the_next_request_waits_for_the_answer() -> None:
    connection = ServerConnection()
    assert ask(connection, GET + GET) is not None
    assert connection.next_request() is None
    connection.answer(200, [], b"")
    assert connection.next_request() is not None


def test_an_answer_is_what_a_client_reads() -> None:
    connection, client = ServerConnection(), h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    ask(connection, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    data = connection.begin(200, [("Content-Type", "text/plain")])
    data += connection.chunk(b"one") + connection.chunk(b"") + connection.chunk(b"two") + connection.finish()
    client.receive_data(data)
    body = b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        body += bytes(event.data) if isinstance(event, h11.Data) else b""
    assert body == b"onetwo"
    assert connection.idle
    assert not connection.closes


def test_head_gets_no_body() -> None:
    connection = ServerConnection()
    ask(connection, b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert connection.answer(200, [], b"body").endswith(b"\r\n\r\n")
    ask(connection, b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"body" not in connection.begin(200, []) + connection.chunk(b"body") + connection.finish()


def test_close_is_honoured() -> None:
    connection = ServerConnection()
    ask(connection, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    connection.answer(200, [], b"")
    assert connection.closes


def test_an_invitation_for_the_body_is_sent() -> None:
    connection = ServerConnection()
    head = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    connection.receive(head)
    assert connection.next_request() is None
    assert connection.invitation().startswith(b"HTTP/1.1 100 ")
    assert connection.invitation() == b""
    request = ask(connection, b"{}")
    assert request is not None


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"y" * (2 * HEAD_BYTES_MAX), 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), 413),
    ],
)
def test_what_cannot_be_read_is_answered_and_then_nothing_more(data: bytes, status: int) -> None:
    connection = ServerConnection()
    with pytest.raises(RequestError, match="cannot") as raised:
        ask(connection, data)
    assert raised.value.status == status
    assert b"connection: close" in connection.answer(status, [], b"{}").lower()
    assert connection.closes


def test_a_query_is_bounded() -> None:
    query = b"&".join(b"a=%d" % number for number in range(200))
    with pytest.raises(RequestError, match="100 fields"):
        ask(ServerConnection(), b"GET /?" + query + b" HTTP/1.1\r\nHost: x\r\n\r\n")


def test_a_chunked_body_is_bounded_too() -> None:
    connection = ServerConnection()
    ask(connection, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    for _ in range(BODY_BYTES_MAX // 65536):
        assert ask(connection, chunk) is None
    with pytest.raises(RequestError, match="at most"):
        ask(connection, chunk)


def test_pipelining_is_bounded() -> None:
    connection = ServerConnection()
    assert ask(connection, GET) is not None
    with pytest.raises(RequestError, match="before the answer"):
        connection.receive(b"x" * (PIPELINED_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("query", "count"), [({}, 7), ({"n": "3"}, 3), ({"n": "0"}, 0), ({"n": "9" * 40}, 50)]
)
def test_counts(query: dict[str, str], count: int) -> None:
    assert Request("GET", "/", query, {}).count("n", 7, 50) == count


@pytest.mark.parametrize("text", ["-1", "x", "1.5", ""])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(RequestError, match="from 0 to 50"):
        Request("GET", "/", {"n": text}, {}).count("n", 7, 50)


@pytest.mark.parametrize("body", [b"[1]", b"1", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_document(body: bytes) -> None:
    with pytest.raises(RequestError, match="cannot"):
        Request("POST", "/", {}, {}, body).document()


def test_documents_end_with_a_newline() -> None:
    assert json_bytes({"a": 1}) == b'{"a":1}\n'
