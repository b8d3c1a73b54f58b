"""The daemon's own life: start, second copies, stale sockets, stop, and the end of everything with it."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from llamad.exit_status import EXIT_INTERNAL, EXIT_UNAVAILABLE
from tests.conftest import wait_until
from tests.process.daemon_kit import ROOT, Daemon, alive, running


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=20, cwd=ROOT)


def llamad(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "llamad", *arguments)


def in_background(function: Any, *arguments: Any, **named: Any) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments, **named)), daemon=True)
    thread.start()
    return thread, results


def test_it_serves_and_stops_clean() -> None:
    with running({"a": ""}) as daemon:
        assert daemon.ask("a")[1]["model"] == "a"
        family = daemon.processes()
        assert len(family) >= 4
        assert daemon.stop() == 0
        assert not [process for process in family if alive(process)]
        assert {path.name for path in daemon.runtime.iterdir()} == {"llamad.lock"}


def test_sockets_have_their_rights() -> None:
    with running({"a": ""}) as daemon:
        modes = {
            name: stat.S_IMODE((daemon.runtime / name).stat().st_mode)
            for name in ("admin.sock", "lease.sock")
        }
        assert modes == {"admin.sock": 0o660, "lease.sock": 0o600}


def test_titles_tell_role_and_state() -> None:
    with running({"a": ""}) as daemon:
        daemon.ask("a")
        title = wait_until(
            lambda: [line for line in daemon.processes()[0].cmdline() if "1 model loaded" in line]
        )
        assert title[0].startswith("llamad: supervisor [running, 1 model loaded]")


def test_a_second_copy_is_refused_and_names_the_first() -> None:
    with running({"a": ""}) as daemon:
        options = ["--port", "0", "--runtime-dir", str(daemon.runtime), "--state-dir", str(daemon.directory)]
        second = llamad(*options)
        assert second.returncode == 1
        assert f"(pid {daemon.process.pid})" in second.stderr
        assert daemon.ask("a")[0] == 200


def test_stale_sockets_are_replaced(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    for name in ("admin.sock", "lease.sock"):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(runtime / name))
    daemon = Daemon(tmp_path, {"a": ""})
    try:
        daemon.wait_ready()
        assert daemon.ask("a")[0] == 200
        assert daemon.stop() == 0
    finally:
        daemon.process.kill()
        daemon.process.wait(10)


def test_a_port_that_is_taken_is_worth_another_try(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        daemon = Daemon(tmp_path, {"a": ""}, "--port", str(taken.getsockname()[1]))
        assert daemon.process.wait(20) == EXIT_UNAVAILABLE
        assert "cannot listen on 127.0.0.1:" in daemon.log()
        assert "Address already in use" in daemon.log()


def test_a_unix_listener_serves_and_goes_away_with_the_daemon() -> None:
    with running({"a": ""}) as first:
        path = first.directory / "public.sock"
        first.stop()
        daemon = Daemon(first.directory, {"a": ""}, "--host", f"unix:{path}")
        try:
            daemon.wait_ready()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.1 200")
            assert daemon.stop() == 0
            assert not path.exists()
        finally:
            daemon.process.kill()
            daemon.process.wait(10)


def test_killed_hard_it_leaves_nothing() -> None:
    """One second after SIGKILL of the supervisor no process of llamad is there: not the front, not an instance."""
    with running({"a": "", "b": "ignore_term", "c": "load_s=30"}) as daemon:
        daemon.ask("a")
        daemon.ask("b")
        daemon.post("/models/load", model="c")
        wait_until(lambda: daemon.value("c") == "loading")
        family = daemon.processes()
        assert len(family) >= 6
        daemon.signal(signal.SIGKILL)
        daemon.process.wait(10)
        wait_until(lambda: not [process for process in family if alive(process)], within_s=1.5)


def test_running_answers_finish_before_it_stops() -> None:
    with running({"a": ""}) as daemon:
        daemon.ask("a")
        # A lease outlives a small request by a moment.
        wait_until(lambda: daemon.model("a")["llamad"]["leases"] == 0)
        thread, answers = in_background(daemon.ask, "a", stream=True, n=20, every_s=0.05)
        wait_until(lambda: daemon.model("a")["llamad"]["leases"] == 1)
        assert daemon.stop() == 0
        thread.join(10)
        status, text = answers[0]
        assert status == 200
        assert '{"n": 19}' in text
        assert "[DONE]" in text


def test_who_comes_while_it_stops_is_turned_away_at_once() -> None:
    with running({"a": ""}) as daemon:
        daemon.ask("a")
        # A lease outlives a small request by a moment.
        wait_until(lambda: daemon.model("a")["llamad"]["leases"] == 0)
        thread, _ = in_background(daemon.ask, "a", stream=True, n=40, every_s=0.05)
        wait_until(lambda: daemon.model("a")["llamad"]["leases"] == 1)
        daemon.signal(signal.SIGTERM)
        wait_until(lambda: daemon.state() == "stopping")
        wait_until(lambda: refuses(daemon.port), within_s=1.5)
        assert thread.is_alive(), "the answer that runs goes on meanwhile"
        thread.join(10)
        assert daemon.process.wait(10) == 0


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_second_signal_cuts_short() -> None:
    with running({"a": ""}) as daemon, daemon.stream("a", n=2000):
        daemon.signal(signal.SIGINT)
        wait_until(lambda: daemon.state() == "stopping")
        daemon.signal(signal.SIGINT)
        assert daemon.process.wait(10) == 0


def test_stopped_while_loading_it_does_not_wait_for_the_load() -> None:
    with running({"slow": "load_s=60"}) as daemon:
        thread, answers = in_background(daemon.ask, "slow")
        wait_until(lambda: daemon.value("slow") == "loading")
        assert daemon.stop(10) == 0
        thread.join(10)
        assert answers[0][0] == 503


def test_usr1_writes_the_state_to_the_log() -> None:
    with running({"a": ""}) as daemon:
        daemon.signal(signal.SIGUSR1)
        wait_until(lambda: "a: unloaded, 0 leases, 0 waiting" in daemon.log())


def test_the_front_is_started_again() -> None:
    with running({"a": ""}) as daemon:
        front = next(row for row in daemon.get("/ps")["processes"] if row["state"] == "arbiter")
        os.kill(front["pid"], signal.SIGKILL)
        again = wait_until(
            lambda: [
                row
                for row in daemon.get("/ps")["processes"]
                if row["state"] == "arbiter" and row["pid"] != front["pid"]
            ]
        )
        assert again
        assert daemon.ask("a")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--version"], 0), (["--help"], 0), (["--no-such-option"], 2)]
)
def test_exit_codes_of_the_command_line(arguments: list[str], status: int) -> None:
    done = llamad(*arguments)
    assert done.returncode == status
    assert "Traceback" not in done.stderr


def test_a_bug_before_the_start_does_not_read_as_bad_configuration() -> None:
    script = (
        "import sys, llamad.__main__, llamad.daemon.start as start; "
        "start.raise_descriptor_limit = lambda: 1 / 0; sys.exit(llamad.__main__.daemon_main([]))"
    )
    done = python("-c", script)
    assert done.returncode == EXIT_INTERNAL
    assert "ZeroDivisionError" in done.stderr


def test_an_argument_that_is_not_utf8_is_bad_usage(tmp_path: Path) -> None:
    done = llamad("--runtime-dir", str(tmp_path), "--models-dir", os.fsdecode(b"/x\xff"))
    assert done.returncode == 2
    assert "not UTF-8" in done.stderr


def test_the_supervisor_imports_nothing_heavy() -> None:
    script = (
        "import sys, llamad.daemon.start; "
        "print(sorted({'llama_cpp', 'falcon', 'click', 'numpy', 'asyncio', 'threading'} & set(sys.modules)))"
    )
    done = python("-c", script)
    assert done.stdout.strip() == "['threading']", "logging itself imports threading; nothing else may come"
