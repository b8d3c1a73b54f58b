"""A client that costs as little as one in Python can: sockets and a selector, answers read no further than their end.

The time of a request runs from its first byte to the last of its answer. Connections are opened before it, also anew where
a server closes them, which is in that server's favour.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from serve import Door

ANSWER_S = 300.0
LAST_CHUNK = b"\r\n0\r\n\r\n"
EVENT = b"data: {"
CHUNKED = -1


class Requester:
    """One connection, one request at a time."""

    def __init__(self, door: Door, path: str, body: bytes) -> None:
        self._door = door
        self._request = _head(door, path, body) + body
        self._answer = bytearray()
        self._whole_bytes: int | None = None
        self._began_s = 0.0
        self.socket = self._connect()

    def begin(self) -> None:
        self._answer.clear()
        self._whole_bytes = None
        self._began_s = time.perf_counter()
        self.socket.sendall(self._request)

    def receive(self) -> float | None:
        """Take what has come; seconds since `begin` when the answer is whole. Raises SystemExit on any but a 200."""
        data = self.socket.recv(262144)
        if not data:
            raise SystemExit(f"cannot measure: the server hung up after {bytes(self._answer[:500])!r}")
        self._answer += data
        if not self._is_whole():
            return None
        took_s = time.perf_counter() - self._began_s
        if self.status != 200:
            raise SystemExit(f"cannot measure: {bytes(self._answer[:500])!r}")
        return took_s

    @property
    def status(self) -> int:
        return int(self._answer[9:12])

    @property
    def events(self) -> int:
        """How many events the answer has, and thereby tokens."""
        return self._answer.count(EVENT)

    @property
    def body(self) -> bytes:
        """Of a whole answer that is not chunked."""
        return bytes(self._answer.partition(b"\r\n\r\n")[2])

    def renew(self) -> None:
        """A fresh connection where the server has said that it closes this one."""
        head = bytes(self._answer.partition(b"\r\n\r\n")[0]).lower()
        if b"connection: close" in head:
            self.socket.close()
            self.socket = self._connect()

    def _is_whole(self) -> bool:
        if self._whole_bytes is None:
            end = self._answer.find(b"\r\n\r\n") + 4
            if end < 4:
                return False
            lines = bytes(self._answer[:end]).lower().split(b"\r\n")
            lengths = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
            self._whole_bytes = end + lengths[0] if lengths else CHUNKED
        if self._whole_bytes == CHUNKED:
            return self._answer.endswith(LAST_CHUNK)
        return len(self._answer) >= self._whole_bytes

    def _connect(self) -> socket.socket:
        connection = socket.create_connection((self._door.host, self._door.port), ANSWER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


@contextmanager
def requesters(door: Door, path: str, bodies: Iterable[bytes]) -> Iterator[list[Requester]]:
    """One for each body, closed at the end."""
    opened: list[Requester] = []
    try:
        for body in bodies:
            opened.append(Requester(door, path, body))
        yield opened
    finally:
        for one in opened:
            one.socket.close()


def latencies_s(door: Door, path: str, body: bytes, clients: int, requests: int) -> list[float]:
    """Of `requests` requests, by so many clients of which each has always one under way."""
    found: list[float] = []
    with requesters(door, path, [body] * clients) as crowd, selectors.DefaultSelector() as selector:
        for one in crowd:
            selector.register(one.socket, selectors.EVENT_READ, one)
            one.begin()
        while len(found) < requests:
            for key, _ in selector.select(ANSWER_S):
                one = key.data
                took_s = one.receive()
                if took_s is None:
                    continue
                found.append(took_s)
                selector.unregister(one.socket)
                one.renew()
                selector.register(one.socket, selectors.EVENT_READ, one)
                one.begin()
    return found


def stream_events(door: Door, path: str, bodies: list[bytes]) -> int:
    """All these streams at once, to their ends; how many events came."""
    with requesters(door, path, bodies) as crowd, selectors.DefaultSelector() as selector:
        for one in crowd:
            selector.register(one.socket, selectors.EVENT_READ, one)
            one.begin()
        while selector.get_map():
            ready = selector.select(ANSWER_S)
            if not ready:
                raise SystemExit(f"cannot measure: no event for {ANSWER_S:.0f} s")
            for key, _ in ready:
                if key.data.receive() is not None:
                    selector.unregister(key.fileobj)
        return sum(one.events for one in crowd)


def is_served(door: Door, path: str, body: bytes) -> bool:
    """Whether it answers that with a 200. Raises OSError."""
    with requesters(door, path, [body]) as (one,):
        one.begin()
        try:
            while one.receive() is None:
                pass
        except SystemExit:
            return False
        return True


def _head(door: Door, path: str, body: bytes) -> bytes:
    key = f"authorization: Bearer {door.token}\r\n" if door.token else ""
    return (
        f"POST {path} HTTP/1.1\r\nhost: {door.host}:{door.port}\r\n{key}"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()


def document(**fields: object) -> bytes:
    """A body."""
    return json.dumps(fields).encode()
