"""One child from spawn to exit: order of the end, nothing left behind, whichever system call fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from llamad.clock import SystemClock
from llamad.daemon import pipes
from llamad.daemon.kernel import Exit, Kernel
from llamad.daemon.loop import Loop
from llamad.daemon.process import ChildProcess
from llamad.daemon.spawn import Spawner, child_environment
from llamad.daemon.start import keep_descriptors_apart
from llamad.errors import ProtocolError
from tests.daemon.parts import FailingKernel, children_left, open_fds, run_until

SH = "/bin/sh"
# Three pipes, three of their ends made non-blocking, the process, its pidfd.
CALLS_OF_A_SPAWN = 8


class Recorder:
    """Everything a child did, in order."""

    def __init__(self) -> None:
        self.reports: list[bytes] = []
        self.logs: list[bytes] = []
        self.exits: list[Exit] = []
        self.order: list[str] = []

    def report(self, line: bytes) -> None:
        self.reports.append(line)
        self.order.append("report")

    def log(self, line: bytes) -> None:
        self.logs.append(line)
        self.order.append("log")

    def exit(self, ended: Exit) -> None:
        self.exits.append(ended)
        self.order.append("exit")


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop(SystemClock())
    yield loop
    loop.close()


def spawn(loop: Loop, script: str, recorder: Recorder, kernel: Kernel | None = None) -> ChildProcess:
    spawner = Spawner(loop, kernel or Kernel(), os.environ)
    return spawner.spawn(
        (SH, "-c", script), "test", on_report=recorder.report, on_log=recorder.log, on_exit=recorder.exit
    )


def test_last_words_come_before_the_exit(loop: Loop) -> None:
    seen = Recorder()
    spawn(loop, "echo one; echo log >&2; printf unfinished; exit 3", seen)
    run_until(loop, lambda: seen.exits)
    assert seen.reports == [b"one", b"unfinished"]
    assert seen.logs == [b"log"]
    assert seen.exits == [Exit(exit_code=3)]
    assert seen.order[-1] == "exit"


def test_a_full_pipe_is_drained_after_the_exit(loop: Loop) -> None:
    """More than a pipe holds, and nobody reads until the child is gone."""
    seen = Recorder()
    process = spawn(loop, "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done", seen)
    run_until(loop, lambda: seen.exits)
    assert seen.reports[-1] == b"line 2999"
    assert len(seen.reports) == 3000
    assert process.state.value == "gone"


def test_death_by_signal_is_told_as_such(loop: Loop) -> None:
    seen = Recorder()
    process = spawn(loop, "sleep 60", seen)
    process.kill()
    run_until(loop, lambda: seen.exits)
    assert seen.exits == [Exit(signal=9)]


def test_a_grandchild_dies_with_its_parent(loop: Loop) -> None:
    """It holds the pipes, so without the group's end draining would have to give up."""
    seen = Recorder()
    spawn(loop, "sleep 60 & echo $!; exit 0", seen)
    run_until(loop, lambda: seen.exits, within_s=5)
    assert seen.exits == [Exit(exit_code=0)]
    grandchild = int(seen.reports[0])
    run_until(loop, lambda: not _runs(grandchild))


def test_a_pipe_that_a_stranger_holds_open_is_given_up(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "DRAIN_S_MAX", 0.2)
    seen = Recorder()
    spawn(loop, "setsid sleep 5 & echo $!; exit 0", seen)
    run_until(loop, lambda: seen.exits, within_s=3)
    assert seen.exits == [Exit(exit_code=0)]
    os.kill(int(seen.reports[0]), 9)


def test_end_of_stdin_reaches_the_child(loop: Loop) -> None:
    seen = Recorder()
    process = spawn(loop, "cat; echo over", seen)
    process.send(b"hello\n")
    run_until(loop, lambda: seen.reports)
    process.close_stdin()
    run_until(loop, lambda: seen.exits)
    assert seen.reports == [b"hello", b"over"]


def test_a_child_that_reads_nothing_bounds_what_is_kept_for_it(loop: Loop) -> None:
    seen = Recorder()
    process = spawn(loop, "sleep 60", seen)
    for _ in range(10):
        process.send(b"x" * 100_000)
    with pytest.raises(ProtocolError, match="unread"):
        process.send(b"x" * 200_000)
    process.kill()
    run_until(loop, lambda: seen.exits)


def test_sending_to_a_child_that_is_gone_is_no_error(loop: Loop) -> None:
    seen = Recorder()
    process = spawn(loop, "exit 0", seen)
    run_until(loop, lambda: seen.exits)
    process.send(b"too late\n")
    process.kill()


def test_a_long_log_line_is_cut_and_the_next_one_is_whole(loop: Loop) -> None:
    seen = Recorder()
    script = f"{sys.executable} -c \"import sys; print('x' * 10000, file=sys.stderr); print('y', file=sys.stderr)\""
    spawn(loop, script, seen)
    run_until(loop, lambda: seen.exits)
    assert [len(line) for line in seen.logs] == [4096, 1]


def test_a_program_that_does_not_exist_is_an_error_and_leaves_nothing(loop: Loop) -> None:
    before, seen = open_fds(), Recorder()
    spawner = Spawner(loop, Kernel(), os.environ)
    with pytest.raises(FileNotFoundError):
        spawner.spawn(
            ("/no/such/program",), "test", on_report=seen.report, on_log=seen.log, on_exit=seen.exit
        )
    assert open_fds() == before
    assert not children_left()


@pytest.mark.parametrize("fail_at", range(1, 10))
def test_whichever_call_fails_nothing_leaks(fail_at: int) -> None:
    loop = Loop(SystemClock())
    before, seen, kernel = open_fds(), Recorder(), FailingKernel(fail_at)
    if fail_at <= CALLS_OF_A_SPAWN:
        with pytest.raises(OSError, match=f"call {fail_at}$"):
            spawn(loop, "echo hello", seen, kernel)
        assert seen.exits == []
    else:
        spawn(loop, "echo hello", seen, kernel)
        assert len(kernel.calls) == CALLS_OF_A_SPAWN
        run_until(loop, lambda: seen.exits)
        assert seen.reports == [b"hello"]
    assert open_fds() == before
    assert not children_left()
    loop.close()


def test_the_child_gets_exactly_its_three_descriptors(loop: Loop) -> None:
    keep_descriptors_apart()
    seen = Recorder()
    spawn(loop, "ls /proc/self/fd | wc -l", seen)
    run_until(loop, lambda: seen.exits)
    # 0, 1, 2 and the one that `ls` lists with.
    assert int(seen.reports[0]) == 4


def test_inherited_descriptors_become_three_and_on_whatever_their_numbers_were(loop: Loop) -> None:
    seen = Recorder()
    files = [os.open(path, os.O_RDONLY) for path in ("/proc/version", "/proc/uptime")]
    spawner = Spawner(loop, Kernel(), os.environ)
    spawner.spawn(
        (SH, "-c", "readlink /proc/self/fd/3 /proc/self/fd/4"),
        "test",
        on_report=seen.report,
        on_log=seen.log,
        on_exit=seen.exit,
        inherit=(files[1], files[0]),
    )
    run_until(loop, lambda: seen.exits)
    assert seen.reports == [b"/proc/uptime", b"/proc/version"]
    for fd in files:
        os.close(fd)


def test_the_child_leads_a_session_of_its_own(loop: Loop) -> None:
    seen = Recorder()
    process = spawn(loop, "sleep 60", seen)
    assert os.getsid(process.pid) == process.pid
    process.kill()
    run_until(loop, lambda: seen.exits)


def test_environment_is_minimal_and_the_models_own_entries_win() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/home/x",
        "LC_ALL": "C",
        "CUDA_VISIBLE_DEVICES": "0",
        "LLAMA_ARG_API_KEY": "secret",
        "HF_TOKEN": "secret",
        "NOTIFY_SOCKET": "/run/x",
        "LISTEN_FDS": "1",
        "LLAMA_CACHE": "/models",
    }
    child = child_environment(environ, "instance", {"CUDA_VISIBLE_DEVICES": "1", "MINE": "yes"})
    assert child["PATH"] == "/bin"
    assert child["CUDA_VISIBLE_DEVICES"] == "1"
    assert child["MINE"] == "yes"
    assert child["GOMP_SPINCOUNT"] == "40000"
    assert child["OMP_WAIT_POLICY"] == "active"
    assert child["LLAMA_SERVER_CHILD_ROLE"] == "instance"
    assert not {"NOTIFY_SOCKET", "LISTEN_FDS", "LLAMA_CACHE", "LLAMA_ARG_API_KEY", "HF_TOKEN"} & set(child)
    assert child_environment(environ, "scan")["LLAMA_CACHE"] == "/models"


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
