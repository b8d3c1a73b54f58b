"""How the daemon is started matters: by systemd with sockets, from odd shells, with a scan that fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import wait_until
from tests.process.daemon_kit import FAKE_CHILD, ROOT, Daemon, running

# What systemd does between fork and exec.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="http")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


@pytest.fixture
def notify(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(20)
        yield receiver


def heard(notify: socket.socket, wanted: str) -> str:
    """The first message that has `wanted` in it."""
    while True:
        message = notify.recv(4096).decode()
        if wanted in message:
            return message


def test_sockets_readiness_and_watchdog_of_systemd(tmp_path: Path, notify: socket.socket) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    models = tmp_path / "models.ini"
    models.write_text("version = 1\n")
    command = [
        sys.executable, "-c", HAND_OVER, str(listener.fileno()), str(FAKE_CHILD), "daemon", "--port", "1",
        "--workers", "1", "--models-preset", str(models), "--runtime-dir", str(tmp_path / "run"),
        "--state-dir", str(tmp_path / "state"),
    ]  # fmt: skip
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "400000",
    }
    process = subprocess.Popen(command, pass_fds=[listener.fileno()], env=environ, cwd=ROOT)
    try:
        ready = heard(notify, "READY=1")
        assert f"MAINPID={process.pid}" in ready
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        heard(notify, "WATCHDOG=1")
        process.send_signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in heard(notify, "RELOADING=1")
        heard(notify, "READY=1")
        process.send_signal(signal.SIGTERM)
        heard(notify, "STOPPING=1")
        assert process.wait(15) == 0
        # The port is systemd's: clients that come now wait for the next daemon instead of being refused.
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        listener.close()


def test_a_scan_that_fails_at_the_start_is_bad_configuration(tmp_path: Path) -> None:
    script = (
        "import os, sys; from llamad.daemon.spawn import Commands; from llamad.daemon.start import run; "
        "sys.exit(run(sys.argv[1:], os.environ, Commands(scan=('/bin/sh', '-c', 'echo why >&2; exit 7'))))"
    )
    options = ["--port", "0", "--runtime-dir", str(tmp_path / "run"), "--state-dir", str(tmp_path / "state")]
    done = subprocess.run(
        [sys.executable, "-c", script, *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
        cwd=ROOT,
    )
    assert done.returncode == 1
    assert "cannot read the configuration: the scan ended with exit status 7: why" in done.stderr
    assert not (tmp_path / "run" / "admin.sock").exists()


def test_what_was_left_open_for_the_daemon_does_not_reach_its_children() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    mark = os.readlink(f"/proc/self/fd/{writer}")
    try:
        with running({"a": ""}, inherit=[writer]) as daemon:
            daemon.ask("a")
            holders = [process for process in daemon.processes() if mark in descriptors(process)]
            assert [process.pid for process in holders] == [daemon.process.pid]
    finally:
        os.close(reader)
        os.close(writer)


def test_children_have_descriptors_to_spare() -> None:
    with running({"a": ""}) as daemon:
        soft, hard = psutil.Process(daemon.process.pid).rlimit(psutil.RLIMIT_NOFILE)
        assert soft == min(hard, 65536)


def test_a_client_that_stops_waiting_for_a_load_does_not_stop_the_load() -> None:
    with running({"slow": "load_s=1.5"}) as daemon:
        with pytest.raises(TimeoutError):
            daemon.admin("POST", "/models/load", {"model": "slow", "wait": True}, timeout_s=0.3)
        wait_until(lambda: daemon.value("slow") == "loaded")


def test_the_log_can_be_followed_while_it_grows() -> None:
    with running({"a": "chatty=3"}) as daemon:
        with daemon.following("/logs/a?n=0&follow=1") as answer:
            daemon.post("/models/load", model="a", wait=True)
            assert answer.readline() == b"fake a line 0\n"
        with daemon.following("/events?n=0&follow=1") as answer:
            daemon.post("/models/unload", model="a", wait=True)
            assert b'"model":"a"' in answer.readline()


def descriptors(process: psutil.Process) -> set[str]:
    folder = Path(f"/proc/{process.pid}/fd")
    return {os.readlink(entry) for entry in folder.iterdir()}


def test_daemon_of_the_kit_is_the_real_one(tmp_path: Path) -> None:
    """The kit replaces the instance and nothing else."""
    daemon = Daemon(tmp_path, {"a": ""})
    try:
        daemon.wait_ready()
        roles = {row["role"] for row in daemon.get("/ps")["processes"]}
        assert roles == {"supervisor", "proxy"}
        assert daemon.stop() == 0
    finally:
        daemon.process.kill()
        daemon.process.wait(10)
