"""Accepting and moving bytes, where descriptors run out and peers are slow or gone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamad.daemon.kernel import Kernel
from llamad.daemon.loop import Loop
from llamad.daemon.stream import ACCEPT_PAUSE_S, Acceptor, Stream
from tests.daemon.parts import FailingKernel, HandClock


class Bench:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.loop = Loop(self.clock)
        self.data = b""
        self.ends: list[str] = []

    def stream(self, limit_bytes: int = 1 << 20) -> tuple[Stream, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        stream = Stream(self.loop, Kernel(), ours, limit_bytes, on_data=self.take, on_end=self.ends.append)
        return stream, theirs

    def take(self, data: bytes) -> None:
        self.data += data

    def turn(self, passes: int = 3) -> None:
        for _ in range(passes):
            self.loop.run_once(0)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.loop.close()


def test_out_of_descriptors_it_pauses_instead_of_spinning(bench: Bench, tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    kernel, accepted = FailingKernel(1), []
    acceptor = Acceptor(bench.loop, kernel, kernel.listen_unix(path, 0o600, 5), accepted.append)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        bench.turn(20)
        assert kernel.calls == ["accept"], "the listener is readable all the time, and nobody must look at it"
        bench.clock.now += ACCEPT_PAUSE_S
        bench.turn()
        assert len(accepted) == 1
    accepted[0].close()
    acceptor.close()


def test_an_acceptor_closed_in_its_pause_stays_closed(bench: Bench, tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    kernel, accepted = FailingKernel(1), []
    acceptor = Acceptor(bench.loop, kernel, kernel.listen_unix(path, 0o600, 5), accepted.append)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        bench.turn()
        acceptor.close()
        bench.clock.now += 2 * ACCEPT_PAUSE_S
        bench.turn()
    assert accepted == []


def test_small_writes_of_one_pass_go_out_together(bench: Bench) -> None:
    stream, peer = bench.stream()
    for number in range(10):
        stream.send(b"%d" % number)
    with pytest.raises(BlockingIOError):
        peer.recv(100)
    bench.turn(1)
    assert peer.recv(100) == b"0123456789"
    stream.close()
    peer.close()


def test_what_does_not_fit_now_goes_out_later_and_in_order(bench: Bench) -> None:
    stream, peer = bench.stream(8 << 20)
    data = bytes(range(256)) * 16384
    stream.send(data)
    got = b""
    while len(got) < len(data):
        bench.turn(1)
        try:
            got += peer.recv(1 << 20)
        except BlockingIOError:
            continue
    assert got == data
    assert stream.unsent_bytes == 0
    stream.close()
    peer.close()


def test_a_peer_that_does_not_read_is_dropped_with_the_reason(bench: Bench) -> None:
    stream, peer = bench.stream(1000)
    stream.send(b"x" * 900)
    stream.send(b"x" * 900)
    assert bench.ends == ["left 900 bytes unread"]
    assert stream.closed
    stream.send(b"into the void")
    peer.close()


def test_the_end_is_told_once(bench: Bench) -> None:
    stream, peer = bench.stream()
    peer.sendall(b"bye")
    peer.close()
    bench.turn()
    stream.close("again")
    assert (bench.data, bench.ends) == (b"bye", [""])


def test_writing_to_a_peer_that_is_gone_ends_the_stream(bench: Bench) -> None:
    stream, peer = bench.stream()
    stream.pause_reading()
    peer.close()
    stream.send(b"x")
    bench.turn()
    assert len(bench.ends) == 1
    assert "Broken pipe" in bench.ends[0]


def test_close_when_sent_sends_first(bench: Bench) -> None:
    stream, peer = bench.stream()
    stream.send(b"last words")
    stream.close_when_sent()
    stream.send(b"too late")
    assert not stream.closed
    bench.turn()
    assert peer.recv(100) == b"last words"
    assert peer.recv(100) == b""
    assert bench.ends == [""]
    peer.close()


def test_paused_reading_leaves_the_bytes_where_they_are(bench: Bench) -> None:
    stream, peer = bench.stream()
    stream.pause_reading()
    peer.sendall(b"x")
    bench.turn()
    assert bench.data == b""
    stream.resume_reading()
    bench.turn()
    assert bench.data == b"x"
    stream.close()
    peer.close()
