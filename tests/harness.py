"""A real llamad for tests: started on a free port with directories of its own, stopped with nothing left behind."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import requests

from tests.conftest import wait_until

READY_WITHIN_S = 30.0
STOP_WITHIN_S = 30.0
LOAD_WITHIN_S = 60.0
LOG_TAIL_BYTES = 6000

Document = dict[str, Any]


class UnixConnection(http.client.HTTPConnection):
    """http.client over a Unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("llamad", timeout=timeout_s)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Llamad:
    """One `llamad` process with its children. Use as a context manager; leaving it asserts that all of it is gone."""

    def __init__(self, presets: str, *options: str) -> None:
        # Not pytest's tmp_path: a Unix socket's path has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="llamad-test-"))
        self.presets = self.folder / "models.ini"
        self.presets.write_text(presets)
        self.log = self.folder / "llamad.log"
        self.url = ""
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: dict[int, psutil.Process] = {}

    def __enter__(self) -> Llamad:
        try:
            self.start()
        except BaseException:
            self.clear()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self.clear()

    # ---- life

    def start(self) -> None:
        """Start it and wait until the public port answers."""
        command = [
            sys.executable,
            "-m",
            "llamad",
            "--config",
            "/dev/null",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
        ]
        command += ["--models-preset", str(self.presets), "--runtime-dir", str(self.folder / "run")]
        command += ["--state-dir", str(self.folder / "state"), *self._options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment_without_llamad()
            )
        self.url = f"http://127.0.0.1:{wait_until(self._port, READY_WITHIN_S)}"
        wait_until(lambda: self._answers("/health"), READY_WITHIN_S)

    def stop(self) -> int:
        """SIGTERM, then the exit status; fails if any process of it is left."""
        assert self._process is not None
        self.processes()
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(STOP_WITHIN_S)
        assert not self.left(), f"left after the stop: {self.left()}\n{self.log_tail()}"
        assert status == 0, f"exit status {status}\n{self.log_tail()}"
        return status

    def kill(self) -> None:
        """SIGKILL to the supervisor alone."""
        assert self._process is not None
        self.processes()
        self._process.kill()
        self._process.wait(STOP_WITHIN_S)

    def clear(self) -> None:
        """Take away whatever is left, processes and files."""
        for process in self.left():
            process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def reload(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    # ---- processes

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def processes(self) -> list[psutil.Process]:
        """The supervisor and all below it that live now."""
        try:
            root = psutil.Process(self.pid)
            tree = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            tree = []
        self._seen.update({process.pid: process for process in tree})
        return tree

    def left(self) -> list[psutil.Process]:
        """All that were ever seen and still run (a zombie is not running; its parent is this test or init)."""
        return [process for process in self._seen.values() if _runs(process)]

    def ps(self, role: str, model: str | None = None) -> list[Document]:
        """The rows of `GET /ps` with this role."""
        rows = self.admin("GET", "/ps")["processes"]
        return [row for row in rows if row["role"] == role and (model is None or row["model"] == model)]

    def workers(self) -> set[int]:
        """The pids of the proxy's workers that serve."""
        return {row["pid"] for row in self.ps("proxy") if row["state"] == "worker"}

    # ---- what it says

    def admin(
        self, method: str, path: str, body: Document | None = None, timeout_s: float = 60.0
    ) -> Document:
        """A document of the admin socket; fails on an error status."""
        document: Document = json.loads(self._admin_text(method, path, body, timeout_s))
        return document

    def log_of(self, model: str) -> str:
        """What the model's processes have said."""
        return self._admin_text("GET", f"/logs/{quote(model, safe='')}?n=1000")

    def _admin_text(
        self, method: str, path: str, body: Document | None = None, timeout_s: float = 60.0
    ) -> str:
        connection = UnixConnection(self.folder / "run" / "admin.sock", timeout_s)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        assert answer.status == 200, f"{method} {path}: {answer.status} {text}"
        return text

    def model(self, name: str) -> Document:
        return self.admin("GET", f"/models/{quote(name, safe='')}")

    def state(self, name: str) -> str:
        return str(self.model(name)["status"]["value"])

    def wait_state(self, name: str, state: str, within_s: float = LOAD_WITHIN_S) -> Document:
        wait_until(lambda: self.state(name) == state, within_s)
        return self.model(name)

    def log_tail(self) -> str:
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    # ---- asking it

    def post(self, path: str, body: Document | bytes, **options: Any) -> requests.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return requests.post(self.url + path, data=data, headers=headers, timeout=(10, 120), **options)

    def chat(self, model: str, text: str, **fields: Any) -> requests.Response:
        body = {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0, "seed": 1}
        return self.post("/v1/chat/completions", {**body, **fields}, stream=bool(fields.get("stream")))

    def _answers(self, path: str) -> bool:
        self._assert_running()
        try:
            return requests.get(self.url + path, timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    def _port(self) -> int:
        self._assert_running()
        try:
            listeners = self.admin("GET", "/status", timeout_s=5)["daemon"]["listeners"]
        except (OSError, http.client.HTTPException):
            return 0
        return int(str(listeners[0]).rpartition(":")[2])

    def _assert_running(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, (
            f"llamad ended with {self._process.returncode}\n{self.log_tail()}"
        )


def events(response: requests.Response) -> Iterator[Document | str]:
    """The events of a stream as documents, and "[DONE]" for the end marker. Ends when the body does."""
    assert response.status_code == 200, response.text
    for line in response.iter_lines():
        if line.startswith(b"data: "):
            data = line.removeprefix(b"data: ").decode()
            yield data if data == "[DONE]" else json.loads(data)


def text_of(stream: Sequence[Document | str]) -> str:
    """The answer that a chat stream's events add up to."""
    choices = [choice for event in stream if isinstance(event, dict) for choice in event.get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def environment_without_llamad() -> dict[str, str]:
    """This process's environment, less what would configure a llamad."""
    return {
        key: value for key, value in os.environ.items() if not key.startswith(("LLAMA", "NOTIFY_", "LISTEN_"))
    }


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
