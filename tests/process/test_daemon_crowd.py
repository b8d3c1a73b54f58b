"""One client asks for more than there is: others are served, and so are operators."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from llamad.daemon.model_feed import READERS_PER_CLIENT_MAX
from tests.process.daemon_kit import Daemon, running

AT_ONCE = 1200
"""More by far than the admin socket takes connections."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    keys: Path = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("greedy name=greedy\nmodest name=modest\n")
    keys.chmod(0o600)
    with running({"a": ""}, "--api-key-file", str(keys)) as found:
        yield found


def connected(daemon: Daemon) -> socket.socket:
    return socket.create_connection(("127.0.0.1", daemon.port), timeout=30)


def ask(client: socket.socket, path: str, key: str) -> None:
    client.sendall(f"GET {path} HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\n\r\n".encode())


@contextmanager
def asked(daemon: Daemon, path: str, key: str) -> Iterator[socket.socket]:
    with connected(daemon) as client:
        ask(client, path, key)
        yield client


def status(client: socket.socket) -> int:
    answer = b""
    while b"\r\n" not in answer:
        answer += client.recv(4096)
    return int(answer.split()[1])


def test_a_storm_of_lists_is_answered_and_locks_nobody_out(daemon: Daemon) -> None:
    with ExitStack() as stack:
        storm = [stack.enter_context(connected(daemon)) for _ in range(AT_ONCE)]
        for client in storm:
            ask(client, "/v1/models", "greedy")
        assert daemon.get("/version")["version"]
        with asked(daemon, "/v1/models", "modest") as other:
            assert status(other) == 200
        assert Counter(map(status, storm)) == {200: AT_ONCE}
    assert "Traceback" not in daemon.log()


def test_one_client_follows_so_often_and_another_still_can(daemon: Daemon) -> None:
    with ExitStack() as stack:
        many = [stack.enter_context(asked(daemon, "/models/sse", "greedy")) for _ in range(70)]
        assert Counter(map(status, many)) == {
            200: READERS_PER_CLIENT_MAX,
            429: len(many) - READERS_PER_CLIENT_MAX,
        }
        with asked(daemon, "/models/sse", "modest") as other:
            assert status(other) == 200
