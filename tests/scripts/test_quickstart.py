"""scripts/quickstart on the environment of the tests: whose answer it shows, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.conftest import wait_until

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MODEL = "smollm2-135m-instruct"


@pytest.fixture
def quickstart(tmp_path: Path, smollm2: Path) -> Path:
    """The script in a tree of its own, where the environment is made already."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("quickstart", "stream_chat.py", "free_port.py"):
        shutil.copy(SCRIPTS / name, scripts)
    (scripts / "lib.sh").write_text(
        f'. "{SCRIPTS}/lib.sh"\nROOT="{tmp_path}"\nMODELS="{smollm2.parent}"\n'
        "make_venv() { :; }\ninstall_llamad() { :; }\n"
    )
    (tmp_path / ".quickstart").mkdir()
    (tmp_path / ".quickstart/venv").symlink_to(sys.prefix)
    return scripts / "quickstart"


class Stranger(BaseHTTPRequestHandler):
    """Somebody else's server: healthy, and ready to talk."""

    def do_GET(self) -> None:
        self._say(b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        piece = {"choices": [{"delta": {"content": "a stranger's answer"}}]}
        self._say(f"data: {json.dumps(piece)}\n\ndata: [DONE]\n\n".encode())

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def taken_port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_answer_of_whoever_has_the_port_is_not_shown_as_ours(quickstart: Path, taken_port: int) -> None:
    done = subprocess.run(
        [quickstart, "--once", "--port", str(taken_port)],
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    log = Path(done.stderr.rpartition("the end of ")[2].partition(" is above")[0])
    shutil.rmtree(log.parent)
    assert done.returncode == 1
    assert "a stranger's answer" not in done.stdout
    assert "Address already in use" in done.stderr


def test_ctrl_c_lets_a_running_answer_finish(quickstart: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("w") as file:
        process = subprocess.Popen([quickstart, "--port", "0"], stdout=file, start_new_session=True)
    try:
        wait_until(lambda: "/v1/chat/completions" in output.read_text(), within_s=60)
        url = output.read_text().partition("starting llamad on ")[2].split()[0]
        with urllib.request.urlopen(long_question(url), timeout=60) as answer:
            lines = [answer.readline()]
            os.killpg(process.pid, signal.SIGINT)
            lines += answer.readlines()
        assert lines[-2:] == [b"data: [DONE]\n", b"\n"]
        assert process.wait(60) == 130
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def long_question(url: str) -> urllib.request.Request:
    body = {"model": MODEL, "stream": True, "max_tokens": 300, "ignore_eos": True}
    body["messages"] = [{"role": "user", "content": "Tell me a story."}]
    return urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
