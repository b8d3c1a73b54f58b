"""A stand-in for a model child: speaks the child pipe and answers HTTP, and misbehaves on order.

python fake_child.py            an instance; behaviour from FAKE, words separated by blanks:
    load_s=N        loading takes so long, with progress
    hang            never reports anything
    ignore_exit     stays when asked to leave, and at the end of its stdin
    ignore_term     stays at SIGTERM
    fail            says why and exits with 1
    die=N           exits with N while loading
    abort           ends by SIGABRT while loading
    disorder        reports `sleeping` before `loading`
    stray_address   says it listens somewhere else
    chatty=N        writes N lines of log before it is ready

python fake_child.py daemon …   the real daemon with such instances; the rest is its command line
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from llamad.wire.child import Exit, Start, State, Stats, encode, parse_command


def main() -> int:
    if sys.argv[1:2] == ["daemon"]:
        return run_daemon(sys.argv[2:])
    wishes = dict(word.partition("=")[::2] for word in os.environ.get("FAKE", "").split())
    if "ignore_term" in wishes:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start = parse_command(sys.stdin.buffer.readline())
    assert isinstance(start, Start)
    threading.Thread(target=obey, args=(wishes,), daemon=True).start()
    serve(start.body, wishes)
    return 0


def run_daemon(argv: list[str]) -> int:
    from llamad.daemon.spawn import Commands
    from llamad.daemon.start import run
    from llamad.errors import ConfigError

    try:
        return run(argv, os.environ, Commands(instance=(sys.executable, os.path.abspath(__file__))))
    except ConfigError as error:
        print(f"llamad: {error}", file=sys.stderr)
        return 1


def obey(wishes: dict[str, str]) -> None:
    """Leave when told to, or when the parent is gone."""
    for line in sys.stdin.buffer:
        if isinstance(parse_command(line), Exit):
            break
    if "ignore_exit" not in wishes:
        os._exit(0)


def say(report: State | Stats) -> None:
    sys.stdout.buffer.write(encode(report))
    sys.stdout.buffer.flush()


def serve(body: dict[str, Any], wishes: dict[str, str]) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(body))
    for number in range(int(wishes.get("chatty", "1"))):
        print(f"fake {body['model']} line {number}", file=sys.stderr)
    if "hang" in wishes:
        time.sleep(3600)
    if "disorder" in wishes:
        say(State("sleeping"))
    load(float(wishes.get("load_s", "0")))
    if "fail" in wishes:
        say(State("failed", {"kind": "bad-model", "message": "cannot load the fake: told to fail"}))
        os._exit(1)
    if "die" in wishes:
        os._exit(int(wishes["die"]))
    if "abort" in wishes:
        os.abort()
    host = "10.0.0.1" if "stray_address" in wishes else "127.0.0.1"
    say(State("ready", {"address": f"{host}:{server.server_address[1]}", "n_ctx": 512, "n_slots": 2}))
    say(Stats({"slots_busy": 0}))
    server.serve_forever()


def load(duration_s: float) -> None:
    deadline = time.monotonic() + duration_s
    while True:
        left = deadline - time.monotonic()
        value = 1.0 if duration_s == 0 else min(1.0, 1 - left / duration_s)
        say(State("loading", {"stages": ["text_model"], "current": "text_model", "value": value}))
        if left <= 0:
            return
        time.sleep(min(left, 0.05))


def handler_for(body: dict[str, Any]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply({"status": "ok"})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            asked = json.loads(self.rfile.read(length) or b"{}")
            if self.headers.get("Authorization") != f"Bearer {body['token']}":
                self.reply({"error": {"code": 401, "message": "cannot serve a stranger"}}, 401)
            elif asked.get("stream"):
                self.stream(int(asked.get("n", 5)), float(asked.get("every_s", 0.05)))
            else:
                time.sleep(float(asked.get("take_s", 0)))
                self.reply({"model": body["model"], "pid": os.getpid(), "options": body["options"]})

        def reply(self, document: Any, status: int = 200) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def stream(self, count: int, every_s: float) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(count):
                time.sleep(every_s)
                self.chunk(f'data: {{"n": {number}}}\n\n'.encode())
            self.chunk(b"data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")

        def chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


if __name__ == "__main__":
    sys.exit(main())
