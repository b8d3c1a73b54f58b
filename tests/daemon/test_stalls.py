"""Hangs, by what an instance says and what its process does, on a clock that is moved by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from llamad.config.settings import ModelSpec
from llamad.core.events import ChildStalled, Event
from llamad.daemon.loop import Loop
from llamad.daemon.monitor import Instance
from llamad.daemon.stalls import ProcessLook, Stalls, busy, look_at_process
from llamad.wire.child import LinkState
from tests.conftest import wait_until
from tests.daemon.parts import HandClock


class Bench:
    def __init__(self, timeout_s: float = 60.0) -> None:
        self.clock = HandClock()
        self.loop = Loop(self.clock)
        self.events: list[Event] = []
        self.instance = Instance(7, ModelSpec("m", "/m.gguf"), "token", "")
        self.instance.link.state = LinkState.READY
        self.leases: dict[int, int] = {}
        self.stopped = False
        self.cpu_s = 0.0
        self.gone = False
        self.looks = 0
        self.stalls = Stalls(
            self.loop, lambda: [self.instance], lambda: self.leases, self.events.append, lambda _: self.look()
        )
        self.stalls.limit(timeout_s)

    def look(self) -> ProcessLook | None:
        self.looks += 1
        return None if self.gone else ProcessLook(self.stopped, self.cpu_s)

    def says(self, **stats: Any) -> None:
        self.instance.stats = stats

    def passes(self, seconds: float, cpu_share: float = 0.0) -> None:
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += 1.0
            self.cpu_s += cpu_share
            self.loop.run_once(0)

    def complaints(self) -> list[str]:
        assert all(isinstance(event, ChildStalled) and event.child == 7 for event in self.events)
        return [event.message for event in self.events if isinstance(event, ChildStalled)]


def test_busy_without_a_step_for_the_whole_limit() -> None:
    bench = Bench(60)
    bench.says(steps=10, slots_busy=1)
    bench.passes(60)
    assert bench.complaints() == []
    bench.passes(10)
    (message,) = bench.complaints()
    assert message.startswith("cannot go on with 'm': it is busy and its engine has done no step for 6")


def test_every_step_winds_the_clock() -> None:
    bench = Bench(60)
    for steps in range(10):
        bench.says(steps=steps, slots_busy=1)
        bench.passes(50)
    assert bench.complaints() == []


def test_those_without_a_slot_count_as_busy_too() -> None:
    bench = Bench(60)
    bench.says(steps=1, slots_busy=0, queued=3)
    bench.passes(70)
    assert len(bench.complaints()) == 1


@pytest.mark.parametrize(
    "stats",
    [{"steps": 1, "slots_busy": 0, "queued": 0}, {"slots_busy": 1}, {}, {"steps": 1, "slots_busy": "x"}],
    ids=["idle", "counts no steps", "says nothing", "nonsense"],
)
def test_who_has_nothing_to_do_or_promised_nothing_may_be_silent(stats: dict[str, Any]) -> None:
    bench = Bench(60)
    bench.says(**stats)
    bench.leases = {7: 1}
    bench.passes(1000)
    assert bench.complaints() == []


def test_one_long_step_that_uses_the_processor_has_ten_times_as_long() -> None:
    bench = Bench(60)
    bench.says(steps=1, slots_busy=1)
    bench.passes(590, cpu_share=1.0)
    assert bench.complaints() == []
    bench.passes(20, cpu_share=1.0)
    assert len(bench.complaints()) == 1


def test_stopped_with_requests_though_it_last_said_that_it_was_idle() -> None:
    bench = Bench(60)
    bench.says(steps=1, slots_busy=0)
    bench.stopped = True
    bench.passes(200)
    assert bench.complaints() == [], "nobody wants anything of it"
    bench.leases = {7: 2}
    bench.passes(70)
    assert "stopped for 6" in bench.complaints()[0]


def test_a_process_that_goes_on_in_time_is_left_alone() -> None:
    bench = Bench(60)
    bench.says(steps=1, slots_busy=0)
    bench.leases = {7: 2}
    for _ in range(5):
        bench.stopped = True
        bench.passes(40)
        bench.stopped = False
        bench.passes(10)
    assert bench.complaints() == []


@pytest.mark.parametrize("state", [LinkState.WORKING, LinkState.SLEEPING, LinkState.EXITING])
def test_only_those_that_serve_are_looked_at(state: LinkState) -> None:
    bench = Bench(60)
    bench.says(steps=1, slots_busy=1)
    bench.instance.link.state = state
    bench.passes(200)
    assert (bench.complaints(), bench.looks) == ([], 0)


def test_off_looks_at_nobody() -> None:
    bench = Bench(0)
    bench.says(steps=1, slots_busy=1)
    bench.passes(1000)
    assert bench.looks == 0
    bench.stalls.limit(60)
    bench.stalls.limit(0)
    bench.passes(1000)
    assert bench.looks == 0


def test_a_process_that_is_gone_is_nobodys_hang() -> None:
    bench = Bench(60)
    bench.says(steps=1, slots_busy=1)
    bench.gone = True
    bench.passes(100)
    assert bench.complaints() == []


def test_busy_by_its_own_word() -> None:
    assert busy({"steps": 0, "slots_busy": 1})
    assert not busy({"steps": 0, "slots_busy": 0})
    assert not busy({"slots_busy": 1})


def test_looking_at_a_real_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            wait_until(lambda: (look := look_at_process(process.pid)) and look.cpu_s > 0.05)
            os.kill(process.pid, signal.SIGSTOP)
            wait_until(lambda: (look := look_at_process(process.pid)) and look.stopped)
            began = time.monotonic()
            look_at_process(process.pid)
            assert time.monotonic() - began < 0.5, "a stopped process keeps nobody waiting"
        finally:
            process.kill()
    assert look_at_process(process.pid) is None
