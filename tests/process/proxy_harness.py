"""A real front with real workers on a port of its own, between a fake supervisor and fake instances."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from llamad.wire import lease
from llamad.wire.proxy import LISTENER_FD_FIRST, ProxySettings, encode
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor

MODEL = "org/model:Q4"
# A descriptor cannot be renumbered by subprocess alone.
MOVE_LISTENER = f"""
import os, sys
os.dup2(int(sys.argv[1]), {LISTENER_FD_FIRST})
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


class Front:
    """The arbiter process, as the supervisor starts it."""

    def __init__(
        self,
        supervisor: FakeSupervisor,
        listener: socket.socket,
        program: tuple[str, ...] = ("-m", "llamad.proxy"),
        **settings: Any,
    ) -> None:
        self.supervisor = supervisor
        self.port: int = listener.getsockname()[1]
        self.log = tempfile.TemporaryFile()  # noqa: SIM115
        self._heard_before = len(supervisor.heard(lease.Hello))
        self.settings = ProxySettings(
            lease_socket=str(supervisor.lease_socket),
            admin_socket=str(supervisor.admin_socket),
            listeners=1,
            **{"workers": 1, "graceful_timeout_s": 20, **settings},
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", MOVE_LISTENER, str(listener.fileno()), *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.log,
            pass_fds=[listener.fileno()],
        )
        assert self.process.stdin is not None
        self.process.stdin.write(encode(self.settings))
        self.process.stdin.flush()

    def wait_up(self) -> None:
        """A worker says hello once it serves."""
        wanted = self._heard_before + self.settings.workers
        wait_until(lambda: self._alive() and len(self.supervisor.heard(lease.Hello)) >= wanted, 15)

    def _alive(self) -> bool:
        assert self.process.poll() is None, self.log_text()
        return True

    def connect(self) -> socket.socket:
        """A client's connection, with TLS where the front speaks it."""
        connection = socket.create_connection(("127.0.0.1", self.port), 10)
        if not self.settings.ssl_cert_file:
            return connection
        context = ssl.create_default_context(cafile=self.settings.ssl_cert_file)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(connection)

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def log_text(self) -> str:
        self.log.seek(0)
        return self.log.read().decode()

    def stop(self) -> None:
        """TERM, and that it works."""
        workers = self.workers() if self.process.poll() is None else []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        finally:
            for worker in workers:
                if worker.is_running():
                    worker.kill()
            self.process.kill()
            self.process.wait()
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.log.close()


class Instance:
    """A fake instance process."""

    def __init__(self, *args: str) -> None:
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.process.fake_instance", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.address = wait_until(lambda: self.said and self.said[0], 15)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())

    def gone_at(self, play: str) -> float | None:
        """When it saw the client of such a play leave."""
        for line in self.said:
            if line.startswith(f"gone {play} "):
                return float(line.rsplit(" ", 1)[1])
        return None

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        yield listener


class Client:
    """A client that sees each byte: one connection, HTTP/1.1 by hand."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.rest = b""

    @classmethod
    def of(cls, front: Front) -> Client:
        """As the front wants it: with TLS or without."""
        client = cls.__new__(cls)
        client.socket, client.rest = front.connect(), b""
        return client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, method: str, target: str, body: bytes | None = None, **headers: str) -> None:
        lines = [f"{method} {target} HTTP/1.1", "host: front"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + (body or b""))

    def post(self, play: str, model: str = MODEL, **fields: Any) -> None:
        """A chat request that the fake instance plays."""
        body = json.dumps({"model": model, "play": play, **fields}, ensure_ascii=False).encode()
        self.send("POST", "/v1/chat/completions", body, content_type="application/json")

    def receive(self) -> bytes:
        """More bytes, b"" at the end of the connection."""
        return self.socket.recv(65536)

    def read_until(self, end: bytes) -> bytes:
        while end not in self.rest:
            data = self.receive()
            assert data, f"the connection ended after {self.rest!r}"
            self.rest += data
        found, _, self.rest = self.rest.partition(end)
        return found + end

    def read_exactly(self, count: int) -> bytes:
        found = bytearray(self.rest)
        while len(found) < count:
            data = self.receive()
            assert data, f"the connection ended {count - len(found)} bytes early"
            found += data
        self.rest = bytes(found[count:])
        return bytes(found[:count])

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers, names in lower case."""
        first, *lines = self.read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")[:-2]
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(first.split()[1]), headers

    def chunk(self) -> bytes:
        """One chunk of the body as it was framed, b"" for the last."""
        size = int(self.read_until(b"\r\n"), 16)
        return self.read_exactly(size + 2)[:-2]

    def chunks(self) -> list[bytes]:
        found = []
        while data := self.chunk():
            found.append(data)
        return found

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, b"".join(self.chunks())
        return status, headers, self.read_exactly(int(headers["content-length"]))

    def error(self) -> tuple[int, dict[str, Any], dict[str, str]]:
        """An answer that has to be an error body."""
        status, headers, body = self.answer()
        assert headers["content-type"] == "application/json"
        error = json.loads(body)["error"]
        assert error["code"] == status
        assert error["message"].startswith("cannot")
        assert headers["x-request-id"]
        return status, error, headers


@contextmanager
def whole_front(**settings: Any) -> Iterator[tuple[Front, FakeSupervisor]]:
    """A front that is up, with its supervisor; stopped with TERM at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="llamad-front-") as folder,
        listening() as listener,
        FakeSupervisor(Path(folder)) as supervisor,
    ):
        front = Front(supervisor, listener, **settings)
        try:
            front.wait_up()
            yield front, supervisor
        finally:
            front.stop()


@contextmanager
def instance(*args: str) -> Iterator[Instance]:
    running = Instance(*args)
    try:
        yield running
    finally:
        running.stop()
