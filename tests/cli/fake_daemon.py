"""A daemon for llamactl to talk to: the admin API of ARCHITECTURE 3.3 on a Unix socket, with models that do as told.

It stands in for what the real daemon cannot be made to do on demand: a load that hangs half way, one that fails, a
log that goes on while somebody follows.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from llamad.errors import LlamadError, NotFoundError

Document = dict[str, Any]
BOUND_S = 30.0


@dataclass
class FakeModel:
    """A change that is waited for goes on when `go` is set (it is at first). `failure`: what a load ends with."""

    id: str
    aliases: tuple[str, ...] = ()
    state: str = "unloaded"
    state_after_unload: str = "unloaded"
    failure: str = ""
    progress: float | None = None
    go: threading.Event = field(default_factory=threading.Event)
    log: list[str] = field(default_factory=list)
    ours: Document = field(default_factory=dict)
    failed: bool = False

    def __post_init__(self) -> None:
        self.go.set()

    def document(self) -> Document:
        status: Document = {
            "value": self.state,
            "args": ["--ctx-size", "512"],
            "preset": f"[{self.id}]\nctx-size = 512\n",
        }
        if self.failed:
            status |= {"failed": True, "exit_code": 1}
        if self.progress is not None:
            status["progress"] = self.progress
        ours = {
            "reason": "",
            "leases": 0,
            "waiting": 0,
            "last_used_s": None,
            "loaded_s": None,
            "pid": None,
            "memory": None,
        }
        return {
            "id": self.id,
            "aliases": list(self.aliases),
            "tags": [],
            "object": "model",
            "owned_by": "llamad",
            "created": 1764567890,
            "status": status,
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "source": "preset",
            "meta": {"architecture": "llama", "n_ctx_train": 8192, "size": 98 << 20},
            "llamad": ours | self.ours,
        }


class FakeDaemon:
    """Serves `models` on `folder`/admin.sock until `close`."""

    def __init__(
        self, folder: Path, models: list[FakeModel], listeners: tuple[str, ...] = ("127.0.0.1:8080",)
    ) -> None:
        self.models = {model.id: model for model in models}
        self.listeners = listeners
        self.tls = False
        self.asked: list[tuple[str, str, Document]] = []
        self.reload_answer: Document | LlamadError = {"success": True, "unchanged": len(models)}
        self.already = False
        self.queue: list[Document] = []
        self.problems: list[Document] = []
        self.processes: list[Document] = []
        self.why: dict[str, Document] = {}
        self.plans: dict[str, Document] = {}
        self.log = ["first line", "second line"]
        self.events: list[Document] = []
        self.news = threading.Condition()
        self.closing = False
        self.chunked = True
        self.cut_after_line = ""
        self.hang_up_on = ""
        self.socket_path = folder / "admin.sock"
        self._server = _Server(str(self.socket_path), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        with self.news:
            self.closing = True
            self.news.notify_all()
        for model in self.models.values():
            model.go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def write(self, lines: list[Any], *more: Any) -> None:
        """Add to a log or to the events while somebody may be following."""
        with self.news:
            lines.extend(more)
            self.news.notify_all()

    def find(self, name: str) -> FakeModel:
        for model in self.models.values():
            if name == model.id or name in model.aliases:
                return model
        raise NotFoundError(f"cannot find model {name!r}", kind="model-not-found")

    def posts(self, path: str) -> list[Document]:
        return [body for method, where, body in self.asked if (method, where) == ("POST", path)]

    def status(self) -> Document:
        return {
            "daemon": {
                "version": "0.1.0",
                "pid": 4711,
                "state": "running",
                "uptime_s": 185.0,
                "started_at": 1764567890.0,
                "runtime_dir": "/run/llamad",
                "config_file": "/etc/llamad/llamad.ini",
                "listeners": list(self.listeners),
                "tls": self.tls,
                "workers": 2,
                "workers_ready": 2,
            },
            "limits": {"models_max": 2, "max_queued": 512, "drain_after_s": 30.0, "queue_timeout_s": 600.0},
            "devices": [],
            "queue": self.queue,
            "models": [model.document() for model in self.models.values()],
            "problems": self.problems,
        }

    def load(self, body: Document) -> Document:
        model = self.find(body["model"])
        if model.state == "loaded":
            return {**_changed(model), "already": self.already}
        model.state = "loading"
        if not body["wait"]:
            return {**_changed(model), "already": self.already}
        assert model.go.wait(BOUND_S), "nobody let the load go on"
        model.progress = None
        if model.failure:
            model.state, model.failed = "unloaded", True
            raise LlamadError(model.failure, kind="load-failed", status=503)
        model.state = "loaded"
        return {**_changed(model), "already": self.already}

    def unload(self, body: Document) -> Document:
        model = self.find(body["model"])
        if body["wait"]:
            assert body.get("force") or model.go.wait(BOUND_S), "nobody let the unload go on"
            model.state = model.state_after_unload
        return {**_changed(model), "already": self.already}

    def keep(self, body: Document) -> Document:
        return {**_changed(self.find(body["model"])), "pinned": True, "held_for_s": body.get("for_s")}

    def reload(self, body: Document) -> Document:
        if isinstance(self.reload_answer, LlamadError):
            raise self.reload_answer
        return self.reload_answer


def _changed(model: FakeModel) -> Document:
    return {"success": True, "status": model.document()["status"]}


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    fake: FakeDaemon

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A follower that hangs up in mid-write is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    @property
    def fake(self) -> FakeDaemon:
        return self.server.fake

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.fake.asked.append(("GET", parts.path, {}))
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if parts.path.startswith(("/logs", "/events")):
            self._answer_or_error(lambda: self._stream(parts.path, query))
        else:
            self._answer_or_error(lambda: self._json(200, self._document(parts.path)))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.fake.asked.append(("POST", self.path, body))
        changes = {
            "/models/load": self.fake.load,
            "/models/unload": self.fake.unload,
            "/models/pin": self.fake.keep,
            "/models/unpin": self.fake.keep,
            "/models/hold": self.fake.keep,
            "/reload": self.fake.reload,
        }
        self._answer_or_error(lambda: self._change(body, changes[self.path]))

    def _change(self, body: Document, change: Callable[[Document], Document]) -> None:
        answer = change(body)
        if body.get("model") == self.fake.hang_up_on:
            self.close_connection = True
            return
        self._json(200, answer)

    def _answer_or_error(self, answer: Callable[[], None]) -> None:
        try:
            answer()
        except LlamadError as error:
            self._json(error.status, error.body())

    def _document(self, path: str) -> Document:
        if path == "/models":
            return {"object": "list", "data": [model.document() for model in self.fake.models.values()]}
        if path.startswith("/models/"):
            return self.fake.find(unquote(path.removeprefix("/models/"))).document()
        for about, explained in (("/why/", self.fake.why), ("/plan/", self.fake.plans)):
            if path.startswith(about):
                model = self.fake.find(unquote(path.removeprefix(about)))
                return {"model": model.id, **explained[model.id]}
        documents: dict[str, Document] = {
            "/status": self.fake.status(),
            "/ps": {"processes": self.fake.processes},
            "/version": {"version": "0.1.0", "python": "3.11.2", "platform": "Linux-6.1"},
        }
        return documents[path]

    def _json(self, status: int, document: Document) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, path: str, query: dict[str, str]) -> None:
        lines: list[Any] = self.fake.events
        if path.startswith("/logs"):
            name = unquote(path.removeprefix("/logs").removeprefix("/"))
            lines = self.fake.find(name).log if name else self.fake.log
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        if self.fake.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        self._write_lines(lines, max(0, len(lines) - int(query["n"])), follow=query.get("follow") == "1")

    def _write_lines(self, lines: list[Any], at: int, *, follow: bool) -> None:
        while True:
            for line in lines[at:]:
                self._piece((json.dumps(line) if isinstance(line, dict) else line).encode() + b"\n")
                if line == self.fake.cut_after_line:
                    self.close_connection = True
                    return
            at = len(lines)
            with self.fake.news:
                if not follow or self.fake.closing:
                    break
                if len(lines) == at:
                    self.fake.news.wait(BOUND_S)
        if self.fake.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if self.fake.chunked else data)
