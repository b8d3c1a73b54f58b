"""The real daemon in a process of its own, with fake instances, on a port and in directories of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import wait_until

FAKE_CHILD = Path(__file__).with_name("fake_child.py")
ROOT = FAKE_CHILD.parents[2]


class Daemon:
    """A running daemon. `models` is what each fake instance is told to do (see fake_child)."""

    def __init__(
        self, directory: Path, models: Mapping[str, str], *options: str, inherit: Sequence[int] = ()
    ) -> None:
        self.directory = directory
        self.runtime = directory / "run"
        self.presets = directory / "models.ini"
        self.log_file = directory / "log"
        self.write_models(models)
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(FAKE_CHILD),
                    "daemon",
                    "--port",
                    "0",
                    "--workers",
                    "1",
                    "--models-preset",
                    str(self.presets),
                    "--runtime-dir",
                    str(self.runtime),
                    "--state-dir",
                    str(directory / "state"),
                    *options,
                ],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
                pass_fds=inherit,
            )

    def write_models(self, models: Mapping[str, str]) -> None:
        """Each value: words for FAKE, then `|`-separated preset lines."""
        gguf = self.directory / "tiny.gguf"
        if not gguf.exists():
            gguf.write_bytes(tiny_gguf())
        text = "version = 1\n"
        for name, value in models.items():
            words, *lines = value.split("|")
            text += f"[{name}]\nmodel = {gguf}\nenv.FAKE = {words or 'load_s=0'}\n" + "\n".join(lines) + "\n"
        whole = self.presets.with_suffix(".new")
        whole.write_text(text)
        whole.rename(self.presets)

    # ---- talking to it

    def wait_ready(self) -> Daemon:
        wait_until(lambda: self._running() and self.state() == "running", within_s=20)
        return self

    def state(self) -> str:
        try:
            return str(self.get("/status")["daemon"]["state"])
        except (OSError, http.client.HTTPException):
            return ""

    @property
    def port(self) -> int:
        return int(self.get("/status")["daemon"]["listeners"][0].rpartition(":")[2])

    def get(self, path: str) -> Any:
        return self.admin("GET", path)[1]

    def post(self, path: str, **body: Any) -> tuple[int, Any]:
        return self.admin("POST", path, body)

    def admin(self, method: str, path: str, body: Any = None, timeout_s: float = 20.0) -> tuple[int, Any]:
        connection = UnixConnection(str(self.runtime / "admin.sock"), timeout_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            data = answer.read()
            kind = answer.headers.get("Content-Type", "")
            return answer.status, json.loads(data) if kind == "application/json" else data.decode()
        finally:
            connection.close()

    @contextmanager
    def following(self, path: str) -> Iterator[http.client.HTTPResponse]:
        """An answer of the admin socket that does not end."""
        connection = UnixConnection(str(self.runtime / "admin.sock"))
        try:
            connection.request("GET", path)
            yield connection.getresponse()
        finally:
            connection.close()

    def ask(self, model: str, timeout_s: float = 20.0, **body: Any) -> tuple[int, Any]:
        """A chat request over the public port."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            document = json.dumps({"model": model, "messages": [], **body})
            connection.request("POST", "/v1/chat/completions", document, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, data.decode() if body.get("stream") else json.loads(data)
        finally:
            connection.close()

    @contextmanager
    def stream(self, model: str, **body: Any) -> Iterator[http.client.HTTPResponse]:
        """A streamed answer whose first event has been read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            document = json.dumps({"model": model, "messages": [], "stream": True, **body})
            connection.request("POST", "/v1/chat/completions", document, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200
            assert answer.readline().startswith(b"data: ")
            yield answer
        finally:
            connection.close()

    def model(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = self.get(f"/models/{name}")
        return document

    def value(self, name: str) -> str:
        return str(self.model(name)["status"]["value"])

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    # ---- its processes

    def processes(self) -> list[psutil.Process]:
        """The daemon and everything below it, zombies included."""
        try:
            top = psutil.Process(self.process.pid)
            return [top, *top.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def zombies(self) -> list[psutil.Process]:
        return [process for process in self.processes() if _status(process) == psutil.STATUS_ZOMBIE]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, within_s: float = 20.0) -> int:
        """SIGTERM, and the exit status."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.process.wait(within_s)

    def _running(self) -> bool:
        assert self.process.poll() is None, f"the daemon ended with {self.process.returncode}:\n{self.log()}"
        return True


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float = 20.0) -> None:
        super().__init__("llamad", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@contextmanager
def running(models: Mapping[str, str], *options: str, inherit: Sequence[int] = ()) -> Iterator[Daemon]:
    """A daemon that is ready, and of which nothing is left afterwards, whatever the test did."""
    with tempfile.TemporaryDirectory(prefix="llamad-daemon-") as directory:
        daemon = Daemon(Path(directory), models, *options, inherit=inherit)
        family: list[psutil.Process] = []
        try:
            daemon.wait_ready()
            yield daemon
        except BaseException:
            print(daemon.log())
            raise
        finally:
            family = daemon.processes()
            if daemon.process.poll() is None:
                daemon.signal(signal.SIGKILL)
                daemon.process.wait(10)
            for process in family:
                _kill(process)


def tiny_gguf() -> bytes:
    """A GGUF head that says `general.architecture = llama`, and no tensor."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    entry = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry


def alive(process: psutil.Process) -> bool:
    """Whether it still runs; a zombie that init has yet to collect does not."""
    return _status(process) not in ("", psutil.STATUS_ZOMBIE)


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status()) if process.is_running() else ""
    except psutil.NoSuchProcess:
        return ""


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
