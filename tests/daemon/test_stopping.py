"""The stages of a stop, with time moved by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from llamad.core.events import Event, StopAsked
from llamad.daemon.kernel import Exit, Kernel
from llamad.daemon.loop import Loop
from llamad.daemon.proxy import FrontState
from llamad.daemon.spawn import Spawner
from llamad.daemon.stopping import GIVE_UP_AFTER_S, GRACE_S, KILL_AFTER_S, Stopper, StopStage
from tests.daemon.parts import HandClock, run_until


class Part:
    """Stands for the front, the monitor and the reloader: remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.state = FrontState.SERVING
        self.scanning = False

    def __getattr__(self, name: str) -> Any:
        return lambda: self.told.append(name)


class DeafKernel(Kernel):
    """Its processes die of no signal, as those in uninterruptible sleep."""

    def send_signal(self, pidfd: int, number: int) -> None:
        return

    def kill_group(self, pgid: int) -> None:
        return


class Bench:
    def __init__(self, *, with_front: bool = True) -> None:
        self.clock = HandClock()
        self.loop = Loop(self.clock)
        self.events: list[Event] = []
        self.front, self.monitor, self.reloader = Part(), Part(), Part()
        self.begun: list[bool] = []
        self.living: Mapping[int, str] = {}
        self.left = False
        self.loop.stop = self.leave  # type: ignore[method-assign]
        self.stopper = Stopper(
            self.loop,
            self.events.append,
            self.monitor,  # type: ignore[arg-type]
            self.reloader,  # type: ignore[arg-type]
            lambda: self.front if with_front else None,  # type: ignore[arg-type, return-value]
            lambda: self.begun.append(True),
            lambda: self.living,
        )

    def leave(self) -> None:
        self.left = True

    def after(self, seconds: float) -> None:
        self.clock.now += seconds
        self.loop.run_once(0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_asked_once_it_drains(bench: Bench) -> None:
    bench.stopper.ask()
    assert bench.begun == [True]
    assert bench.front.told == ["stop"]
    assert bench.reloader.told == ["stop"]
    assert bench.events == [StopAsked(bench.clock.now + GRACE_S)]


def test_asked_twice_or_after_the_grace_it_cuts_once(bench: Bench) -> None:
    bench.stopper.ask()
    bench.stopper.ask()
    bench.stopper.ask()
    assert bench.front.told == ["stop", "stop_now"]
    assert bench.events[-1] == StopAsked(bench.clock.now)
    bench.after(GRACE_S)
    assert bench.front.told.count("stop_now") <= 1

    patient = Bench()
    patient.stopper.ask()
    patient.after(GRACE_S)
    assert patient.front.told == ["stop", "stop_now"]


def test_what_is_left_in_the_end_is_killed(bench: Bench) -> None:
    bench.stopper.ask()
    bench.after(GRACE_S)
    bench.after(KILL_AFTER_S)
    assert bench.monitor.told == ["kill_all"]
    assert bench.front.told[-1] == "kill"
    assert bench.stopper.stage is StopStage.KILLING


def test_it_leaves_when_children_front_and_scan_are_gone(bench: Bench) -> None:
    bench.reloader.scanning = True
    bench.stopper.ask()
    bench.stopper.children_gone()
    assert not bench.left
    bench.front.state = FrontState.STOPPED
    bench.stopper.leave_when_done()
    assert not bench.left
    bench.reloader.scanning = False
    bench.stopper.leave_when_done()
    assert bench.left


def test_there_may_be_no_front_yet() -> None:
    bench = Bench(with_front=False)
    bench.stopper.ask()
    bench.stopper.children_gone()
    assert bench.left


def test_a_front_that_ends_does_not_end_the_daemon_by_itself(bench: Bench) -> None:
    bench.front.state = FrontState.STOPPED
    bench.stopper.leave_when_done()
    assert not bench.left


def test_a_process_that_survives_sigkill_is_named_and_left_behind(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    spawner, ended = Spawner(bench.loop, DeafKernel(), {"PATH": "/usr/bin:/bin"}), list[Exit]()
    process = spawner.spawn(
        ("/bin/cat",), "instance", on_report=lambda _: None, on_log=lambda _: None, on_exit=ended.append
    )
    bench.living = spawner.living()
    bench.monitor.kill_all = process.kill
    bench.stopper.ask()
    bench.after(GRACE_S)
    bench.after(KILL_AFTER_S)
    assert not bench.left
    bench.after(GIVE_UP_AFTER_S)
    assert bench.left
    assert bench.stopper.gave_up
    assert f"instance (pid {process.pid})" in caplog.text
    process.close_stdin()
    run_until(bench.loop, lambda: ended)
    assert not spawner.living()
