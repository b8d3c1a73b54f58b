"""The admin server over real socket pairs: exchanges, rights, streams, bounds."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llamad.daemon.admin import SILENT_S_MAX, UNSENT_BYTES_MAX, AdminServer, Exchange, may_change
from llamad.daemon.admin_routes import Route, Router
from llamad.daemon.following import answer_with_ring
from llamad.daemon.kernel import Kernel, Peer
from llamad.daemon.loop import Loop
from llamad.errors import NotFoundError
from llamad.observe.ring import LineRing
from tests.daemon.parts import HandClock, open_fds, run_until

GET = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n"


class Bench:
    """A server, its loop, and clients of it."""

    def __init__(self, directory: Any) -> None:
        self.clock = HandClock()
        self.loop = Loop(self.clock)
        self.kernel = Kernel()
        self.ring = LineRing()
        self.kept: list[Exchange] = []
        self.abandoned: list[str] = []
        listener = self.kernel.listen_unix(str(directory / "admin.sock"), 0o600, 10)
        routes = [
            Route("GET", "/hello", lambda exchange, _: exchange.answer({"hello": "you"})),
            Route("GET", "/name/", lambda exchange, name: exchange.answer({"name": name})),
            Route("GET", "/later", self.keep),
            Route("GET", "/bug", lambda exchange, _: exchange.answer({"x": 1 // 0})),
            Route("GET", "/missing", self.missing),
            Route("GET", "/lines", self.lines),
            Route("POST", "/change", lambda exchange, _: exchange.answer({"changed": True}), changes=True),
        ]
        self.router = Router(routes)
        self.server = AdminServer(self.loop, self.kernel, listener, self.router.handle)

    def keep(self, exchange: Exchange, _: str) -> None:
        self.kept.append(exchange)
        exchange.on_abandoned = lambda: self.abandoned.append(exchange.request.path)

    def missing(self, exchange: Exchange, _: str) -> None:
        raise NotFoundError("cannot find it", retry_after_s=3.0)

    def lines(self, exchange: Exchange, _: str) -> None:
        answer_with_ring(exchange, self.ring, "text/plain", lambda entry: entry.value.encode() + b"\n")

    def client(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.server.connected(theirs)
        return ours

    def turn(self, passes: int = 5) -> None:
        for _ in range(passes):
            self.loop.run_once(0)

    def read(self, client: socket.socket, until: Callable[[bytes], bool]) -> bytes:
        data = b""

        def enough() -> bool:
            nonlocal data
            try:
                data += client.recv(1 << 20)
            except BlockingIOError:
                pass
            return until(data)

        run_until(self.loop, enough, within_s=5)
        return data

    def answer(self, client: socket.socket, request: bytes) -> tuple[int, Any]:
        client.sendall(request)
        data = self.read(client, _is_whole)
        head, _, body = data.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)


def _is_whole(data: bytes) -> bool:
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return False
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    return len(body) >= length


@pytest.fixture
def bench(tmp_path: Any) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.server.close()
    bench.loop.close()


def test_several_requests_on_one_connection(bench: Bench) -> None:
    client = bench.client()
    assert bench.answer(client, GET % b"/hello") == (200, {"hello": "you"})
    assert bench.answer(client, GET % b"/hello") == (200, {"hello": "you"})
    client.close()


@pytest.mark.parametrize("cut", range(1, len(GET % b"/hello")))
def test_a_request_split_at_any_byte(bench: Bench, cut: int) -> None:
    client, request = bench.client(), GET % b"/hello"
    client.sendall(request[:cut])
    bench.turn(2)
    assert bench.answer(client, request[cut:]) == (200, {"hello": "you"})
    client.close()


def test_names_keep_their_slashes_and_signs(bench: Bench) -> None:
    client = bench.client()
    for path, name in ((b"/name/a/b:c", "a/b:c"), (b"/name/a%2Fb%3Ac", "a/b:c"), (b"/name/%C3%A4", "ä")):
        assert bench.answer(client, GET % path) == (200, {"name": name})
    client.close()


@pytest.mark.parametrize(
    ("request_", "status", "kind"),
    [
        (GET % b"/nothing", 404, "route-not-found"),
        (GET % b"/name/", 404, "route-not-found"),
        (GET % b"/change", 405, "method-not-allowed"),
        (GET % b"/missing", 404, "not-found"),
        (GET % b"/bug", 500, "internal"),
    ],
)
def test_errors_have_the_openai_shape(bench: Bench, request_: bytes, status: int, kind: str) -> None:
    client = bench.client()
    answered, body = bench.answer(client, request_)
    assert (answered, body["error"]["code"], body["error"]["kind"]) == (status, status, kind)
    # The connection goes on after it.
    assert bench.answer(client, GET % b"/hello")[0] == 200
    client.close()


def test_an_unreadable_request_is_answered_and_the_connection_closed(bench: Bench) -> None:
    client = bench.client()
    client.sendall(b"nonsense\r\n\r\n")
    data = bench.read(client, _is_whole)
    assert data.startswith(b"HTTP/1.1 400")
    run_until(bench.loop, lambda: _ended(client))
    client.close()


def test_changing_takes_rights() -> None:
    me = os.geteuid()
    assert may_change(Peer(1, 0, ()), -1)
    assert may_change(Peer(1, me, ()), -1)
    assert may_change(Peer(1, 12345, (7, 100)), 100)
    assert not may_change(Peer(1, 12345, (7, 100)), 101)
    assert not may_change(Peer(1, 12345, (7, 100)), -1)


def test_a_stranger_may_read_but_not_change(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.kernel, "peer", lambda _: Peer(1, 12345, (12345,)))
    client = bench.client()
    assert bench.answer(client, GET % b"/hello")[0] == 200
    status, body = bench.answer(client, b"POST /change HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    assert (status, body["error"]["kind"]) == (403, "not-allowed")
    client.close()


def test_the_kernel_tells_who_is_there() -> None:
    ours, theirs = socket.socketpair()
    peer = Kernel().peer(ours)
    assert (peer.pid, peer.uid) == (os.getpid(), os.geteuid())
    assert os.getegid() in peer.gids
    assert set(os.getgroups()) <= set(peer.gids)
    ours.close()
    theirs.close()


def test_an_answer_may_come_later(bench: Bench) -> None:
    client = bench.client()
    client.sendall(GET % b"/later" + GET % b"/hello")
    bench.turn()
    assert len(bench.kept) == 1
    bench.kept[0].answer({"late": True})
    data = bench.read(client, lambda data: data.count(b"HTTP/1.1 200") == 2)
    assert data.index(b"late") < data.index(b"hello")
    client.close()


def test_who_leaves_before_the_answer_is_noticed_and_the_answer_dropped(bench: Bench) -> None:
    client = bench.client()
    client.sendall(GET % b"/later")
    bench.turn()
    client.close()
    bench.turn()
    assert bench.abandoned == ["/later"]
    bench.kept[0].answer({"too": "late"})
    bench.turn()
    assert not bench.kept[0].open


def test_following_gets_the_past_and_then_what_is_new(bench: Bench) -> None:
    for number in range(5):
        bench.ring.append(f"old {number}")
    client = bench.client()
    client.sendall(GET % b"/lines?n=2&follow=1")
    bench.read(client, lambda data: b"old 3\nold 4\n" in data)
    bench.ring.append("new")
    bench.read(client, lambda data: b"new\n" in data)
    client.close()
    bench.turn()
    bench.ring.append("nobody listens")
    assert bench.ring._followers == []


def test_without_follow_it_ends(bench: Bench) -> None:
    bench.ring.append("one")
    client = bench.client()
    client.sendall(GET % b"/lines")
    assert b"one\n" in bench.read(client, lambda data: data.endswith(b"0\r\n\r\n"))
    client.close()


def test_a_follower_that_does_not_read_is_dropped(bench: Bench) -> None:
    client = bench.client()
    client.sendall(GET % b"/lines?follow=1")
    bench.turn()
    line = "x" * 100_000
    for _ in range(2 * UNSENT_BYTES_MAX // len(line)):
        bench.ring.append(line)
        bench.loop.run_once(0)
    assert bench.ring._followers == []
    client.close()


def test_a_silent_connection_makes_room(bench: Bench) -> None:
    client = bench.client()
    assert bench.answer(client, GET % b"/hello")[0] == 200
    bench.turn()
    bench.clock.now += SILENT_S_MAX + 1
    bench.turn()
    assert _ended(client)
    client.close()


def test_who_does_not_take_its_last_answer_is_hung_up_on(bench: Bench) -> None:
    client = bench.client()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    bench.ring.append("x" * 500_000)
    before = len(bench.server._connections)
    client.sendall(b"GET /lines HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    bench.turn()
    assert len(bench.server._connections) == before
    bench.clock.now += SILENT_S_MAX + 1
    bench.turn()
    assert len(bench.server._connections) == before - 1
    client.close()


def test_who_waits_for_an_answer_is_not_silent(bench: Bench) -> None:
    client = bench.client()
    client.sendall(GET % b"/later")
    bench.turn()
    bench.clock.now += 10 * SILENT_S_MAX
    bench.turn()
    assert bench.kept[0].open
    client.close()


def test_connections_leave_no_descriptor(bench: Bench) -> None:
    before = open_fds()
    clients = [bench.client() for _ in range(20)]
    for client in clients:
        assert bench.answer(client, GET % b"/hello")[0] == 200
        client.close()
    bench.turn()
    assert open_fds() == before


def _ended(client: socket.socket) -> bool:
    try:
        return client.recv(1024) == b""
    except BlockingIOError:
        return False
