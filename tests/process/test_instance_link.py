"""A child's life with its parent: start, exit, end of file, sudden death, and a clean report channel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from llamad.child.link import Link
from llamad.wire.child import Exit, Start, State, Stats, Stop, encode, parse_report
from tests.conftest import wait_until
from tests.process.child_kit import Child

# A role that is stuck: it holds the interpreter in a C call that no Python signal or flag reaches.
STUCK = """
    import ctypes, os, sys
    from llamad.child.link import Link
    from llamad.child.main import die_with_parent, reserve_stdout
    from llamad.wire.child import State
    link = Link(0, reserve_stdout())
    {tie}
    link.start()
    link.listen()
    print("to stdout")
    ctypes.CDLL(None).puts(b"to stdout from C")
    ctypes.CDLL(None).fflush(None)
    link.send(State("loading", {{"pid": os.getpid()}}))
    ctypes.CDLL(None).sleep(60)
"""


def stuck(tie: str = "") -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(STUCK).format(tie=tie)]


def test_an_unknown_role_fails_with_a_reason() -> None:
    with Child("gardener") as child:
        assert child.wait_state("failed") == {
            "kind": "unknown-role",
            "message": "cannot be 'gardener': no such role",
        }
        assert child.exit_status(5) == 1


def test_a_broken_first_line_fails_with_a_reason() -> None:
    with Child() as child:
        child.send(b"cmd_router_to_child:start:{nonsense\n")
        assert child.wait_state("failed")["kind"] == "protocol"
        assert child.exit_status(5) == 1


@pytest.mark.parametrize("end", [Child.ask_exit, Child.close_stdin])
def test_a_child_without_a_role_leaves_when_told(end) -> None:
    with Child() as child:
        end(child)
        assert child.exit_status(5) == 0
        assert child.reports == []


def test_a_stuck_child_is_gone_a_second_after_its_stdin_closes() -> None:
    process = subprocess.Popen(stuck(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        process.stdin.write(encode(Start("x")))
        process.stdin.flush()
        assert isinstance(parse_report(process.stdout.readline()), State)
        process.stdin.close()
        assert process.wait(1.0) == 1
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_what_is_printed_lands_on_stderr() -> None:
    process = subprocess.Popen(stuck(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(encode(Start("x")), timeout=10)
    assert all(parse_report(line) for line in out.splitlines())
    assert b"to stdout from C" in err


def test_a_stuck_child_dies_with_its_parent(tmp_path: Path) -> None:
    # The parent leaves the child's stdin open in a third process (this one), so that only the kernel can tell.
    pid_file = tmp_path / "pid"
    parent_code = f"""
        import subprocess, sys
        child = subprocess.Popen({stuck("die_with_parent(os.getppid())")!r}, stdin=0, stdout=subprocess.PIPE)
        child.stdout.readline()
        open({str(pid_file)!r}, "w").write(str(child.pid) + "\\n")
        child.wait()
    """
    reading, writing = os.pipe()
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(parent_code)], stdin=reading)
    os.close(reading)
    try:
        os.write(writing, encode(Start("x")))
        wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
        child = psutil.Process(int(pid_file.read_text()))
        parent.send_signal(signal.SIGKILL)
        began = time.monotonic()
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, within_s=1.0)
        assert time.monotonic() - began < 1.0
    finally:
        parent.kill()
        parent.wait()
        os.close(writing)


@pytest.fixture
def pipes():
    commands, reports = os.pipe(), os.pipe()
    yield commands, reports
    for fd in (*commands, *reports):
        try:
            os.close(fd)
        except OSError:
            pass


def test_exit_reaches_the_role_however_late_it_listens(pipes) -> None:
    (commands, parent), (_, reports) = pipes
    deaths: list[int] = []
    link = Link(commands, reports, die=deaths.append)
    os.write(parent, encode(Start("x", {"a": 1})) + encode(Exit()) + encode(Exit()))
    assert link.start() == Start("x", {"a": 1})
    calls: list[str] = []
    link.listen()
    wait_until(lambda: link.asked_to_finish)
    link.on_finish(lambda: calls.append("finish"))
    assert calls == ["finish"]
    assert deaths == []
    os.close(parent)
    assert wait_until(lambda: deaths) == [1]
    assert calls == ["finish"]


def test_statistics_are_dropped_and_states_are_not_when_the_parent_does_not_read(pipes) -> None:
    (commands, _), (parent, reports) = pipes
    link = Link(commands, reports)
    for step in range(2000):
        link.send(Stats({"steps": step, "padding": "x" * 200}))
    received = os.read(parent, 1 << 20)
    lines = received.splitlines()
    assert 10 < len(lines) < 2000
    assert all(isinstance(parse_report(line), Stats) for line in lines)
    link.send(State("ready"))
    assert parse_report(os.read(parent, 4096)) == State("ready")


def test_stops_reach_the_role_in_order(pipes) -> None:
    (commands, parent), (_, reports) = pipes
    link = Link(commands, reports, die=lambda status: None)
    tickets: list[int] = []
    os.write(parent, encode(Start("x")) + encode(Stop(1)))
    link.start()
    link.on_stop(tickets.append)
    link.listen()
    os.write(parent, encode(Stop(2)) + encode(Stop(3)))
    assert wait_until(lambda: len(tickets) == 3 and tickets) == [1, 2, 3]
    os.close(parent)
