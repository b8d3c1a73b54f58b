"""Whether threads spin long or short: by what the kernel says of shared cores, and with real threads to switch it."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llamad.engine.spinning import CALM_LOOKS, IDLE_LOOKS, Spinning, Times, Verdict, elapsed, of_threads

FREE, BETWEEN, SHARED = Times(0.1, 0.01), Times(0.1, 0.025), Times(0.1, 0.09)


def test_cores_are_shared_until_they_were_found_free_for_a_while() -> None:
    verdict = Verdict()
    assert [verdict.judge(FREE) for _ in range(CALM_LOOKS)] == [True] * (CALM_LOOKS - 1) + [False]


def test_one_look_at_shared_cores_is_enough() -> None:
    verdict = Verdict()
    for _ in range(CALM_LOOKS):
        verdict.judge(FREE)
    assert verdict.judge(SHARED)
    assert verdict.judge(FREE)


def test_what_is_neither_changes_nothing() -> None:
    verdict = Verdict()
    assert verdict.judge(BETWEEN)
    for _ in range(CALM_LOOKS):
        verdict.judge(FREE)
    assert not verdict.judge(BETWEEN)


def test_looks_that_must_be_calm_are_in_a_row() -> None:
    verdict = Verdict()
    for since in [FREE] * (CALM_LOOKS - 1) + [BETWEEN] + [FREE] * (CALM_LOOKS - 1):
        assert verdict.judge(since)
    assert not verdict.judge(FREE)


class Machine:
    """What threads do between two looks."""

    def __init__(self) -> None:
        self.since = FREE
        self.n_looks = 0
        self._times = Times(0.0, 0.0)

    def look(self) -> dict[int, Times]:
        self.n_looks += 1
        self._times = Times(self._times.ran_s + self.since.ran_s, self._times.waited_s + self.since.waited_s)
        return {1: self._times}


@contextmanager
def switch(machine: Machine) -> Iterator[Spinning]:
    """One core less computes than there are: short is a team of three, of which two threads are new."""
    spinning = Spinning(len(os.sched_getaffinity(0)) - 1, machine.look, look_s=0.001)
    try:
        yield spinning
    finally:
        spinning.close()


def test_it_follows_the_verdict_while_there_is_something_to_compute() -> None:
    machine = Machine()
    with switch(machine) as spinning:
        spinning.begin()
        assert _eventually(lambda: not spinning.short)
        machine.since = SHARED
        assert _eventually(lambda: spinning.short)


def test_short_answers_are_judged_together() -> None:
    machine = Machine()
    with switch(machine) as spinning:
        spinning.begin()
        assert _eventually(lambda: not spinning.short)
        machine.since = Times(SHARED.ran_s / 10, SHARED.waited_s / 10)
        assert _eventually(lambda: spinning.short)


def test_nobody_looks_while_there_is_nothing_to_compute() -> None:
    machine = Machine()
    with switch(machine) as spinning:
        assert _eventually(lambda: spinning._parked)
        n_looks = machine.n_looks
        assert n_looks <= IDLE_LOOKS + 1
        spinning.begin()
        assert _eventually(lambda: machine.n_looks > n_looks)
        spinning.end()
        assert _eventually(lambda: spinning._parked)


def test_short_is_threads_that_sleep() -> None:
    n_before, machine = _n_threads(), Machine()
    machine.since = SHARED
    with switch(machine) as spinning:
        spinning.begin()
        # Its own thread, with a team of three.
        assert _eventually(lambda: _n_threads() == n_before + 3)
        machine.since = FREE
        assert _eventually(lambda: _n_threads() == n_before + 1)
    assert _eventually(lambda: _n_threads() == n_before)


def test_the_kernel_tells_how_long_threads_wait_for_a_core() -> None:
    core = min(os.sched_getaffinity(0))
    enough = threading.Event()

    def compute() -> None:
        os.sched_setaffinity(threading.get_native_id(), {core})
        while not enough.is_set():
            hashlib.sha256(bytes(1_000_000)).digest()  # without the GIL

    threads = [threading.Thread(target=compute) for _ in range(2)]
    before = of_threads()
    for thread in threads:
        thread.start()
    waits = _eventually(lambda: elapsed(before, of_threads()).waited_s > 0.05)
    ran_s = elapsed(before, of_threads()).ran_s
    enough.set()
    for thread in threads:
        thread.join()
    assert waits
    assert ran_s > 0.01


def test_what_threads_did_that_have_ended_or_begun() -> None:
    before = {1: Times(9.0, 9.0), 2: Times(1.0, 2.0)}
    now = {2: Times(1.5, 2.25), 3: Times(0.25, 0.0)}
    assert elapsed(before, now) == Times(0.75, 0.25)


def _n_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _eventually(found: Callable[[], int | bool]) -> int | bool:
    deadline_s = time.monotonic() + 30
    while not (value := found()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return value
