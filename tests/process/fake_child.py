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
    takes=A:N,B:M   says that it takes N MiB of device A, M of B: when it is measured, and when it is ready
    least=A:N,…     when measured, what it takes at least
    really=A:N,…    when it is ready, what it really takes
    asleep=A:N,…    what it still has when it sleeps
    device=A:N      when measured, a device of N MiB that only it can see
    unmeasurable    cannot be measured
    oom             no memory: the first time with a report, then the kernel's way
    stuck           says that it is busy, and does no step

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

from llamad.wire.child import Exit, Sleep, Start, State, Stats, Wake, encode, parse_command

READY: dict[str, Any] = {}
"""What this process says when it is ready; it says it again when it wakes up."""


def main() -> int:
    if sys.argv[1:2] == ["daemon"]:
        return run_daemon(sys.argv[2:])
    wishes = dict(word.partition("=")[::2] for word in os.environ.get("FAKE", "").split())
    if "ignore_term" in wishes:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start = parse_command(sys.stdin.buffer.readline())
    assert isinstance(start, Start)
    if start.role == "measure":
        return measure(wishes)
    threading.Thread(target=obey, args=(wishes,), daemon=True).start()
    serve(start.body, wishes)
    return 0


def measure(wishes: dict[str, str]) -> int:
    say(State("measuring"))
    if "unmeasurable" in wishes:
        say(State("failed", {"kind": "measure-failed", "message": "cannot measure the fake: told to fail"}))
        return 1
    most = held(wishes, "takes")
    least = held(wishes, "least") if "least" in wishes else most
    devices = [{"name": "host", "kind": "host", "total_bytes": 1}]
    devices += [
        {"name": n, "kind": "gpu", "total_bytes": total} for n, total in held(wishes, "device").items()
    ]
    ends = {
        end: {
            "n_ctx": 512,
            "n_gpu_layers": 0,
            "bytes": {name: {"weights": n, "total": n} for name, n in held.items()},
        }
        for end, held in (("minimum", least), ("maximum", most))
    }
    say(State("measured", {"devices": devices, "fixed": False, **ends}))
    return 0


def held(wishes: dict[str, str], wish: str) -> dict[str, int]:
    """Bytes by device of `host:100,FAKE:3000`; 1 MiB of the host unless something is said."""
    text = wishes.get(wish, "" if wish == "device" else "host:1")
    pairs = (word.split(":") for word in text.split(",") if word)
    return {name: int(mib) << 20 for name, mib in pairs}


def run_daemon(argv: list[str]) -> int:
    from llamad.__main__ import daemon_main
    from llamad.daemon.spawn import Commands

    fake = (sys.executable, os.path.abspath(__file__))
    return daemon_main(argv, Commands(instance=fake, measure=fake))


def obey(wishes: dict[str, str]) -> None:
    """Leave when told to, or when the parent is gone."""
    for line in sys.stdin.buffer:
        command = parse_command(line)
        if isinstance(command, Exit):
            break
        if isinstance(command, Sleep):
            say(State("sleeping", {"bytes": held(wishes, "asleep")}))
        if isinstance(command, Wake):
            load(float(wishes.get("load_s", "0")))
            say(State("ready", READY))
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
    if "oom" in wishes:
        run_out_of_memory()
    READY.update(address=f"{host}:{server.server_address[1]}", n_ctx=512, n_slots=2)
    READY["bytes"] = held(wishes, "really" if "really" in wishes else "takes")
    say(State("ready", READY))
    say(Stats({"slots_busy": 1, "steps": 5} if "stuck" in wishes else {"slots_busy": 0}))
    server.serve_forever()


def run_out_of_memory() -> None:
    said = os.environ["TMPDIR"] + "/oom"
    if os.path.exists(said):
        os.kill(os.getpid(), signal.SIGKILL)
    open(said, "w").close()
    say(State("failed", {"kind": "out-of-memory", "message": "cannot load the fake: no memory for 5 MiB"}))
    os._exit(1)


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
                self.reply(
                    {"model": body["model"], "pid": os.getpid(), "options": body["options"], "asked": asked}
                )

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
