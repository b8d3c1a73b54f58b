"""Life of arbiter and workers, and each thing that our worker does differently from gunicorn's.

A change of gunicorn's internals under us has to show here.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest

from llamad.wire import lease
from llamad.wire.proxy import ProxySettings, encode
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, instance, listening, whole_front

DONE = b"data: [DONE]\n\n"


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def stop_took_s(front: Front, number: signal.Signals = signal.SIGTERM) -> float:
    started = time.monotonic()
    front.process.send_signal(number)
    assert front.process.wait(15) == 0, front.log_text()
    return time.monotonic() - started


# ---- draining


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_an_idle_front_stops_at_once(number: signal.Signals):
    with whole_front(workers=2) as (front, _):
        workers = front.workers()
        assert len(workers) == 2
        assert stop_took_s(front, number) < 2
        assert all(map(ended, workers))


def test_a_workers_stop_does_not_wait_for_its_nap_to_end():
    """gunicorn's main loop sleeps a second at a time, beginning about when a worker says hello."""
    with whole_front() as (front, supervisor):
        took_s = []
        for number in range(2, 5):
            (worker,) = front.workers()
            worker.send_signal(signal.SIGTERM)
            told = time.monotonic()
            wait_until(partial(ended, worker), every_s=0.01)
            took_s.append(time.monotonic() - told)
            wait_until(partial(greetings, supervisor, number))
        assert min(took_s) < 0.7, took_s


def greetings(supervisor: FakeSupervisor, count: int) -> bool:
    return len(supervisor.heard(lease.Hello)) == count


def test_term_lets_a_stream_finish_and_takes_no_more():
    with whole_front() as (front, supervisor), instance() as running, Client(front.port) as client:
        supervisor.grant(MODEL, running.address)
        client.post("stream", events=30, every_s=0.05)
        client.head()
        client.chunk()
        front.process.send_signal(signal.SIGTERM)
        assert b"".join(client.chunks()).endswith(b"data: 29\n\n" + DONE)
        front.process.wait(5)
    assert supervisor.heard(lease.Release)[0].outcome == "ok"


def test_a_drain_ends_at_the_graceful_timeout():
    with (
        whole_front(graceful_timeout_s=1) as (front, supervisor),
        instance() as running,
        Client(front.port) as client,
    ):
        supervisor.grant(MODEL, running.address)
        client.post("stall")
        wait_until(lambda: "request stall" in running.said)
        assert stop_took_s(front) < 6
        assert wait_until(lambda: running.gone_at("stall"))


def test_idle_connections_do_not_hold_a_drain():
    """gunicorn waits for them until the graceful timeout."""
    with whole_front() as (front, _), Client(front.port) as used, Client(front.port) as fresh:
        used.send("GET", "/health")
        assert used.answer()[0] == 200
        assert stop_took_s(front) < 6
        assert used.receive() == b""
        assert fresh.receive() == b""


def test_a_draining_worker_says_that_it_is_alive():
    """gunicorn's falls silent, and the arbiter takes it for stuck."""
    with whole_front() as (front, supervisor), instance() as running, Client(front.port) as client:
        supervisor.grant(MODEL, running.address)
        client.post("stream", events=60, every_s=0.05)
        client.head()
        (worker,) = front.workers()
        worker.send_signal(signal.SIGTERM)
        beats: set[float] = set()
        wait_until(lambda: beats.add(last_beat(worker)) or len(beats) > 4, 5)
        assert b"".join(client.chunks()).endswith(DONE)
        wait_until(lambda: ended(worker))
        wait_until(lambda: len(supervisor.heard(lease.Hello)) == 2)


def last_beat(worker: psutil.Process) -> float:
    """When a worker last told its arbiter that it is alive; it does so through the times of a file."""
    files = Path(f"/proc/{worker.pid}/fd").iterdir()
    return next(file.stat().st_mtime for file in files if "wgunicorn" in os.readlink(file))


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.2, 0.3])
def test_a_stop_at_any_moment_of_the_start_is_heard(delay_s: float, tmp_path: Path):
    """uvloop swallows a signal that comes before its loop runs; gunicorn would then wait for the graceful timeout."""
    with listening() as listener, FakeSupervisor(tmp_path) as supervisor:
        front = Front(supervisor, listener, workers=2)
        wait_until(lambda: title_of(front.process.pid) == "llamad: proxy arbiter", every_s=0.002)
        asked_at = time.monotonic() + delay_s
        wait_until(lambda: time.monotonic() >= asked_at, every_s=0.002)
        front.process.send_signal(signal.SIGTERM)
        front.process.wait(5)
        front.stop()


EARLY = """
import os, signal
from llamad.proxy import arbiter

class StoppedEarly(arbiter.FrontApplication):
    def load_config(self):
        super().load_config()
        # After gunicorn has set up a worker's signals, before its loop runs.
        self.cfg.set("post_worker_init", lambda worker: os.kill(os.getpid(), signal.SIGTERM))

arbiter.FrontApplication = StoppedEarly
arbiter.main()
"""


def test_a_stop_before_the_loop_runs_is_heard(tmp_path: Path):
    with listening() as listener, FakeSupervisor(tmp_path) as supervisor:
        front = Front(supervisor, listener, program=("-c", EARLY))
        seen: set[int] = set()
        # Each worker is gone at once, and another takes its place.
        wait_until(lambda: seen.update(worker.pid for worker in front.workers()) or len(seen) > 2)
        front.stop()
        assert not supervisor.heard(lease.Hello)


def title_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().strip("\0")


# ---- death and replacement


def test_a_killed_worker_is_replaced_and_its_leases_end():
    with whole_front() as (front, supervisor), instance() as running, Client(front.port) as client:
        supervisor.grant(MODEL, running.address)
        client.post("stream", events=10_000)
        client.head()
        client.chunk()
        (worker,) = front.workers()
        worker.kill()
        wait_until(lambda: supervisor.workers[0].gone)
        assert wait_until(lambda: running.gone_at("stream"))
        wait_until(lambda: len(supervisor.heard(lease.Hello)) == 2)
        with Client(front.port) as other:
            other.post("echo")
            assert other.answer()[0] == 200
        assert supervisor.heard(lease.Hello)[1].pid == front.workers()[0].pid != worker.pid


def test_a_killed_arbiter_leaves_workers_that_finish_and_go():
    with whole_front() as (front, supervisor), instance() as running, Client(front.port) as client:
        supervisor.grant(MODEL, running.address)
        client.post("stream", events=30, every_s=0.03)
        client.head()
        (worker,) = front.workers()
        front.process.kill()
        assert b"".join(client.chunks()).endswith(DONE)
        wait_until(lambda: ended(worker))


def test_the_end_of_stdin_drains():
    with whole_front() as (front, supervisor), instance() as running, Client(front.port) as client:
        supervisor.grant(MODEL, running.address)
        client.post("stream", events=30, every_s=0.05)
        client.head()
        assert front.process.stdin is not None
        front.process.stdin.close()
        assert b"".join(client.chunks()).endswith(DONE)
        assert front.process.wait(5) == 0


PARENT = """
import os, subprocess, sys
os.dup2(int(sys.argv[1]), 3)
front = subprocess.Popen([sys.executable, "-m", "llamad.proxy"], stdin=subprocess.PIPE, pass_fds=[3])
front.stdin.write(sys.stdin.buffer.readline())
front.stdin.flush()
print(front.pid, flush=True)
front.wait()
"""


def test_nothing_of_the_front_outlives_its_supervisor(tmp_path: Path):
    """Not even with a stream that runs: the instance behind it is gone as well."""
    with listening() as listener, FakeSupervisor(tmp_path) as supervisor, instance() as running:
        supervisor.grant(MODEL, running.address)
        settings = ProxySettings(
            lease_socket=str(supervisor.lease_socket), admin_socket=str(supervisor.admin_socket), listeners=1
        )
        with subprocess.Popen(
            [sys.executable, "-c", PARENT, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        ) as parent:
            assert parent.stdin is not None
            assert parent.stdout is not None
            parent.stdin.write(encode(settings))
            parent.stdin.flush()
            arbiter = psutil.Process(int(parent.stdout.readline()))
            wait_until(lambda: len(supervisor.heard(lease.Hello)) == 2, 15)
            family = [arbiter, *arbiter.children()]
            with Client(listener.getsockname()[1]) as client:
                client.post("stream", events=10_000)
                client.head()
                parent.kill()
                killed = time.monotonic()
                wait_until(lambda: all(map(ended, family)), 5)
                assert time.monotonic() - killed < 2


def test_two_fronts_on_one_listener_hand_over_without_a_failed_request(tmp_path: Path):
    """How a reload goes: the second is up before the first is told to go."""
    with listening() as listener, FakeSupervisor(tmp_path) as supervisor, instance() as running:
        supervisor.grant(MODEL, running.address)
        first = Front(supervisor, listener)
        first.wait_up()
        with Client(first.port) as stream:
            stream.post("stream", events=40, every_s=0.03)
            stream.head()
            second = Front(supervisor, listener)
            second.wait_up()
            first.process.send_signal(signal.SIGTERM)
            probes = 0
            while first.process.poll() is None:
                with Client(second.port) as client:
                    client.send("GET", "/health")
                    assert client.answer()[0] == 200
                probes += 1
            assert b"".join(stream.chunks()).endswith(DONE)
        assert probes > 10
        first.stop()
        second.stop()


def test_a_unix_listeners_path_stays(tmp_path: Path):
    path = tmp_path / "public.sock"
    with socket.socket(socket.AF_UNIX) as listener, FakeSupervisor(tmp_path) as supervisor:
        listener.bind(str(path))
        listener.listen()
        front = Front(supervisor, listener)
        front.wait_up()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert client.makefile("rb").read().startswith(b"HTTP/1.1 200 OK\r\n")
        front.stop()
        assert path.is_socket()


# ---- limits


def test_connections_have_a_limit():
    with whole_front(connections_max=3) as (front, supervisor):
        kept = [Client(front.port) for _ in range(3)]
        for client in kept:
            client.send("POST", "/completion", b'{"model": "a"}')
        wait_until(lambda: len(supervisor.heard(lease.Ask)) == 3)
        with Client(front.port) as client:
            client.send("GET", "/health")
            status, headers, body = client.answer()
            assert (status, headers["content-type"]) == (503, "application/json")
            assert b'"kind":"too-many-connections"' in body
            assert client.receive() == b""
        kept.pop().socket.close()
        wait_until(lambda: answers(front.port))
        for client in kept:
            client.socket.close()


def test_who_only_holds_connections_keeps_nobody_out():
    """Heads that never end and requests that never come give way, the one without a request for longest first."""
    with whole_front(connections_max=3) as (front, supervisor), ExitStack() as stack:
        busy, half, kept = (stack.enter_context(Client(front.port)) for _ in range(3))
        busy.send("POST", "/completion", b'{"model": "a"}')
        (asked,) = wait_until(lambda: supervisor.heard(lease.Ask))
        half.socket.sendall(b"GET /health HTTP/1.1\r\n")
        for _ in range(2):
            kept.send("GET", "/health")
            assert kept.answer()[0] == 200
        assert answers(front.port)
        assert half.receive() == b"", "it gave way"
        kept.send("GET", "/health")
        assert kept.answer()[0] == 200, "it did not"
        for _ in range(20):
            newcomer = stack.enter_context(Client(front.port))
            newcomer.send("GET", "/health")
            assert newcomer.answer()[0] == 200
        assert kept.receive() == b""
        supervisor.send(lease.Refused(asked.lease, "model-not-found", 404, "cannot find it"))
        assert busy.head()[0] == 404, "and who waits for an answer gets it"


def answers(port: int) -> bool:
    with Client(port) as client:
        client.send("GET", "/health")
        return client.head()[0] == 200


def test_a_connection_that_sends_no_whole_head_is_closed():
    """gunicorn has a limit only from the second request on."""
    with whole_front(keepalive_s=1) as (front, _), Client(front.port) as silent, Client(front.port) as slow:
        slow.socket.sendall(b"GET /health HTTP/1.1\r\nx:")
        assert silent.receive() == b""
        assert slow.receive() == b""


def test_the_c_parser_is_in_use():
    """A subclass of gunicorn's protocol that is asked first falls back to the Python parser, or fails if that is forbidden."""
    with whole_front() as (front, _):
        assert answers(front.port)
        maps = Path(f"/proc/{front.workers()[0].pid}/maps").read_text()
        assert "gunicorn_h1c" in maps
        assert "RuntimeError" not in front.log_text()


# ---- settings


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "no whole line"),
        (b"{}", "no whole line"),
        (b"{}\n", "missing required field"),
        (b'{"lease_socket": "a", "admin_socket": "b", "listeners": 0}\n', "without a listener"),
        (b'{"lease_socket": "a", "admin_socket": "b", "listeners": 9}\n', "is not open"),
    ],
)
def test_settings_that_cannot_be_used_end_the_arbiter(line: bytes, message: str):
    ran = subprocess.run(
        [sys.executable, "-m", "llamad.proxy"], input=line, capture_output=True, timeout=15, check=False
    )
    assert ran.returncode == 1
    assert message in ran.stderr.decode()
    assert b"Traceback" not in ran.stderr
