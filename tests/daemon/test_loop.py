"""The loop's rules: who fires, when, and who must not."""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Iterator

import pytest

from llamad.daemon.loop import Loop
from tests.daemon.parts import HandClock


class JumpingSelector(selectors.DefaultSelector):
    """Where nothing is ready, time jumps to the end of the sleep."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__()
        self.clock = clock
        self.sleeps: list[float] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.sleeps.append(timeout)
            self.clock.now += timeout
        return ready


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def loop(clock: HandClock) -> Iterator[Loop]:
    loop = Loop(clock, JumpingSelector(clock))
    yield loop
    loop.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_timers_fire_in_order_of_time_then_of_making(loop: Loop) -> None:
    fired: list[str] = []
    loop.call_later(2, lambda: fired.append("late"))
    loop.call_later(1, lambda: fired.append("first"))
    loop.call_later(1, lambda: fired.append("second"))
    loop.run_once()
    assert fired == ["first", "second"]
    loop.run_once()
    assert fired == ["first", "second", "late"]


def test_loop_sleeps_until_the_nearest_living_timer(loop: Loop, clock: HandClock) -> None:
    loop.call_later(1, lambda: None).cancel()
    loop.call_later(5, lambda: None)
    loop.run_once()
    assert loop._selector.sleeps == [5.0]  # type: ignore[attr-defined]


def test_a_timer_made_in_a_pass_waits_for_the_next(loop: Loop) -> None:
    fired = []

    def again() -> None:
        fired.append(loop.now())
        loop.call_later(0, again)

    loop.call_later(1, again)
    loop.run_once()
    assert len(fired) == 1
    loop.run_once()
    assert len(fired) == 2


def test_a_timer_cancelled_by_its_neighbour_does_not_fire(loop: Loop) -> None:
    fired = []
    timers = []
    loop.call_later(1, lambda: [timer.cancel() for timer in timers])
    timers.append(loop.call_later(1, lambda: fired.append("victim")))
    loop.run_once()
    assert fired == []
    assert not timers[0].pending


def test_many_cancelled_timers_leave_the_heap(loop: Loop) -> None:
    keep = loop.call_later(50, lambda: None)
    for _ in range(1000):
        loop.call_later(100, lambda: None).cancel()
    assert len(loop._timers) < 200
    assert keep.pending


def test_readable_and_writable(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    seen: list[str] = []
    loop.watch(ours.fileno(), readable=lambda: seen.append("read"), writable=lambda: seen.append("write"))
    loop.run_once(0)
    assert seen == ["write"]
    theirs.send(b"x")
    loop.watch(ours.fileno(), readable=lambda: seen.append("read"))
    loop.run_once(0)
    assert seen == ["write", "read"]


def test_a_handler_may_unwatch_its_neighbour(loop: Loop) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    seen = []

    def handler(index: int) -> None:
        seen.append(index)
        for ours, _ in pairs:
            loop.unwatch(ours.fileno())

    for index, (ours, theirs) in enumerate(pairs):
        loop.watch(ours.fileno(), readable=lambda index=index: handler(index))
        theirs.send(b"x")
    loop.run_once(0)
    assert len(seen) == 1
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


def test_a_descriptor_number_that_is_used_again_in_the_same_pass_is_another(loop: Loop) -> None:
    """Closing and opening within a handler gives the old number back; the old event must not reach the new handler."""
    pairs = [socket.socketpair() for _ in range(2)]
    fresh: list[socket.socket] = []
    fired: list[str] = []

    def replace_the_other(index: int) -> None:
        other = pairs[1 - index][0]
        number = other.fileno()
        loop.unwatch(number)
        other.close()
        # Nobody has written to the new pair: its handler must stay silent.
        replacement = socket.socketpair()
        fresh.extend(replacement)
        assert replacement[0].fileno() == number
        loop.watch(number, readable=lambda: fired.append("stale"))

    for index, (ours, theirs) in enumerate(pairs):
        loop.watch(ours.fileno(), readable=lambda index=index: replace_the_other(index))
        theirs.send(b"x")
    loop.run_once(0)
    assert fired == []
    assert len(fresh) == 2
    for opened in [*fresh, *(end for pair in pairs for end in pair)]:
        if opened.fileno() >= 0:
            loop.unwatch(opened.fileno())
            opened.close()


def test_put_off_work_runs_once_before_the_sleep(loop: Loop, clock: HandClock) -> None:
    seen: list[str] = []
    loop.before_sleep(lambda: seen.append("put off"))
    loop.call_later(1, lambda: seen.append("timer"))
    loop.run_once()
    loop.call_later(1, lambda: seen.append("timer"))
    loop.run_once()
    assert seen == ["put off", "timer", "timer"]


def test_work_put_off_by_put_off_work_keeps_the_loop_awake(loop: Loop, clock: HandClock) -> None:
    seen: list[float] = []
    loop.before_sleep(lambda: loop.before_sleep(lambda: seen.append(clock.now)))
    loop.call_later(60, lambda: None)
    began = clock.now
    loop.run_once()
    loop.run_once()
    assert seen == [began]


def test_signals_arrive_in_the_loop_and_handlers_are_given_back(clock: HandClock) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    loop = Loop(clock)
    seen: list[str] = []
    loop.on_signal(signal.SIGUSR1, lambda: seen.append("usr1"))
    loop.on_signal(signal.SIGHUP, lambda: seen.append("hup"))
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGHUP)
    assert seen == []
    loop.run_once(1)
    assert sorted(seen) == ["hup", "usr1"]
    loop.close()
    assert signal.getsignal(signal.SIGUSR1) is before


def test_stop_ends_run_after_the_pass(loop: Loop) -> None:
    seen = []
    loop.call_later(1, loop.stop)
    loop.call_later(1, lambda: seen.append("same pass"))
    loop.call_later(2, lambda: seen.append("later pass"))
    loop.run()
    assert seen == ["same pass"]
