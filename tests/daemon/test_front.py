"""The front as a child that comes back, and the question whether the port answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from llamad.daemon import readiness
from llamad.daemon.kernel import Kernel
from llamad.daemon.listeners import Listener, listen
from llamad.daemon.loop import Loop
from llamad.daemon.proxy import PAUSE_FIRST_S, PAUSE_S_MAX, STABLE_AFTER_S, Front, FrontState
from llamad.daemon.readiness import HealthProbe
from llamad.daemon.spawn import Commands, Spawner
from llamad.wire.proxy import ProxySettings
from tests.daemon.parts import HandClock, children_left, run_until


class Bench:
    """A front that is a shell script; time is moved by hand."""

    def __init__(self, script: str) -> None:
        self.clock = HandClock()
        self.loop = Loop(self.clock)
        self.lines: list[str] = []
        self.stopped = 0
        self.listener = listen(Kernel(), "127.0.0.1:0")
        self.front = Front(
            self.loop,
            Spawner(self.loop, Kernel(), {"PATH": "/usr/bin:/bin"}),
            Commands(proxy=("/bin/sh", "-c", script)),
            ProxySettings(lease_socket="/l", admin_socket="/a", listeners=1),
            [self.listener],
            on_log=self.lines.append,
            on_stopped=self.count_stop,
        )

    def count_stop(self) -> None:
        self.stopped += 1

    def until(self, state: FrontState) -> None:
        run_until(self.loop, lambda: self.front.state is state)

    def close(self) -> None:
        self.front.kill()
        run_until(self.loop, lambda: self.front.process is None)
        assert not children_left()
        self.listener.close()
        self.loop.close()


def bench_of(script: str) -> Iterator[Bench]:
    bench = Bench(script)
    yield bench
    bench.close()


@pytest.fixture
def dying() -> Iterator[Bench]:
    yield from bench_of("exit 3")


@pytest.fixture
def living() -> Iterator[Bench]:
    yield from bench_of(
        'read settings; echo "$settings" >&2; readlink /proc/self/fd/3 >&2; trap "exit 0" TERM; while :; do sleep 0.05; done'
    )


def test_it_gets_its_settings_and_the_listener(living: Bench) -> None:
    living.front.start()
    run_until(living.loop, lambda: len(living.lines) >= 2)
    assert '"listeners":1' in living.lines[0]
    assert living.lines[1].startswith("socket:")


def test_a_front_that_dies_comes_back_after_pauses_that_grow(dying: Bench) -> None:
    dying.front.start()
    pauses = []
    for _ in range(8):
        dying.until(FrontState.PAUSING)
        began = dying.clock.now
        while dying.front.state is FrontState.PAUSING:
            dying.clock.now += 0.25
            dying.loop.run_once(0)
        pauses.append(dying.clock.now - began)
    assert pauses[0] == PAUSE_FIRST_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_S_MAX


def test_one_that_ran_for_long_comes_back_soon(living: Bench) -> None:
    living.front._pause_s = PAUSE_S_MAX
    living.front.start()
    living.clock.now += STABLE_AFTER_S + 1
    living.front.kill()
    living.until(FrontState.PAUSING)
    living.clock.now += PAUSE_FIRST_S
    living.loop.run_once(0)
    assert living.front.state is FrontState.STARTING


def test_stop_waits_for_its_end_and_says_so_once(living: Bench) -> None:
    living.front.start()
    run_until(living.loop, lambda: living.lines)
    living.front.stop()
    living.front.stop()
    assert living.front.state is FrontState.STOPPING
    living.until(FrontState.STOPPED)
    living.front.stop()
    assert living.stopped == 1


def test_stopped_while_it_pauses_it_does_not_come_back(dying: Bench) -> None:
    dying.front.start()
    dying.until(FrontState.PAUSING)
    dying.front.stop()
    assert dying.front.state is FrontState.STOPPED
    dying.clock.now += 2 * PAUSE_S_MAX
    dying.loop.run_once(0)
    assert dying.front.process is None


class Port:
    """A listener whose connections the test answers, and a probe of it."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.loop = Loop(self.clock)
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(5)
        self.listener = Listener("x", listener)
        self.answered: list[bool] = []
        self.probe = HealthProbe(self.loop, Kernel(), self.listener, lambda: self.answered.append(True))

    def answer(self, data: bytes) -> None:
        self.loop.run_once(0)
        connection, _ = self.listener.socket.accept()
        connection.settimeout(5)
        self.loop.run_once(0)
        assert connection.recv(1000).startswith(b"GET /health HTTP/1.1\r\n")
        if data:
            connection.sendall(data)
            connection.close()
            for _ in range(3):
                self.loop.run_once(0.05)

    def again(self) -> None:
        self.clock.now += readiness.RETRY_AFTER_S
        self.loop.run_once(0)


@pytest.fixture
def port() -> Iterator[Port]:
    port = Port()
    yield port
    port.probe.stop()
    port.listener.close()
    port.loop.close()


def test_only_a_200_counts(port: Port) -> None:
    for answer in (b"HTTP/1.1 503 Unavailable\r\n\r\n", b"SSH-2.0-x\r\n", b"\r\n", b"HTTP/1.1"):
        port.answer(answer)
        assert port.answered == []
        port.again()
    port.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert port.answered == [True]


def test_silence_is_given_up_and_asked_again(port: Port) -> None:
    port.answer(b"")
    port.clock.now += readiness.ANSWER_WITHIN_S
    port.loop.run_once(0)
    port.again()
    port.answer(b"HTTP/1.1 200 OK\r\n\r\n")
    assert port.answered == [True]


def test_a_flood_is_no_answer(port: Port) -> None:
    port.answer(b"HTTP/1.1 404 No\r\n\r\n" + b"x" * (4 * readiness.ANSWER_BYTES_MAX))
    assert port.answered == []


def test_a_stopped_probe_asks_no_more(port: Port) -> None:
    port.answer(b"HTTP/1.1 503 No\r\n\r\n")
    port.probe.stop()
    port.again()
    port.listener.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        port.listener.socket.accept()
