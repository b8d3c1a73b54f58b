"""A public port for `llamactl chat`: streams prepared pieces of an answer, well or badly."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Document = dict[str, Any]
BOUND_S = 30.0
DONE = "[DONE]"
HANG = "hang"


def piece(text: str) -> Document:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}


class FakePublic:
    """Answers every POST with `status` and, when that is 200, with `frames` as server-sent events.

    The frame HANG waits for `go`. Without DONE at the end the answer breaks off. `tls`: certificate and key.
    """

    def __init__(self, tls: tuple[Path, Path] | None = None) -> None:
        self.status = 200
        self.error: Document = {}
        self.frames: list[Any] = [piece("Hello"), piece(" world"), DONE]
        self.asked: list[Document] = []
        self.keys: list[str | None] = []
        self.go = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.listener = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(fake: FakePublic) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            fake.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            fake.keys.append(self.headers["Authorization"])
            self.send_response(fake.status)
            self.end_headers()
            if fake.status != 200:
                self.wfile.write(json.dumps({"error": fake.error}).encode())
                return
            self.wfile.write(b": ping\n\n")
            for frame in fake.frames:
                self._frame(frame)

        def _frame(self, frame: Any) -> None:
            if frame == HANG:
                fake.go.wait(BOUND_S)
                return
            data = frame if isinstance(frame, str) else json.dumps(frame)
            self.wfile.write(b"data: " + data.encode() + b"\n\n")
            self.wfile.flush()

    return Handler
