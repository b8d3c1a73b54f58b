"""Rings and log lines."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from llamad.observe.events import EventRing, Happening, to_document
from llamad.observe.log import LineFormatter, StderrHandler, is_journald, relay
from llamad.observe.ring import FOLLOWERS_MAX, LineRing, Ring


def record(text: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("llamad.x", level, "x.py", 1, text, (), None)


def test_a_ring_is_bounded_by_count() -> None:
    ring = LineRing(lines_max=3)
    for number in range(10):
        ring.append(str(number))
    assert [(entry.seq, entry.value) for entry in ring.last(100)] == [(8, "7"), (9, "8"), (10, "9")]
    assert [entry.value for entry in ring.last(1)] == ["9"]
    assert ring.last(0) == []


def test_a_ring_is_bounded_by_weight_but_keeps_the_newest() -> None:
    ring = LineRing(lines_max=100, bytes_max=10)
    for text in ("12345", "67890", "abc"):
        ring.append(text)
    assert [entry.value for entry in ring.last(9)] == ["67890", "abc"]
    ring.append("x" * 100)
    assert [entry.value for entry in ring.last(9)] == ["x" * 100]


def test_followers_hear_what_is_new_until_they_leave() -> None:
    ring: Ring[int] = Ring(10, 100, lambda _: 1)
    heard: list[int] = []
    ring.append(1)
    unfollow = ring.follow(lambda entry: heard.append(entry.value))
    ring.append(2)
    unfollow()
    unfollow()
    ring.append(3)
    assert heard == [2]


def test_a_follower_may_leave_while_it_hears() -> None:
    ring: Ring[int] = Ring(10, 100, lambda _: 1)
    heard: list[str] = []
    leave = [ring.follow(lambda _: leave[0]()), ring.follow(lambda _: heard.append("second"))]
    ring.append(1)
    ring.append(2)
    assert heard == ["second", "second"]


def test_followers_are_bounded() -> None:
    ring: Ring[int] = Ring(10, 100, lambda _: 1)
    for _ in range(FOLLOWERS_MAX):
        ring.follow(lambda _: None)
    with pytest.raises(OverflowError):
        ring.follow(lambda _: None)


def test_the_tail_of_a_log() -> None:
    ring = LineRing()
    for text in ("one", "two", "three"):
        ring.append(text)
    assert ring.tail(2, 100) == "two\nthree"
    assert ring.tail(3, 10) == "two\nthree", "whole lines only"
    assert ring.tail(3, 4) == "three", "but one at least"
    assert ring.tail(3, 100, after=ring.last_seq - 1) == "three", "only what a later process said"


def test_numbers_do_not_hide_fixed_fields() -> None:
    ring = EventRing()
    document = to_document(ring.append(Happening(1.5, "load", "m", "why", {"seq": 99, "need_bytes": 5})))
    assert document == {"seq": 1, "time": 1.5, "kind": "load", "model": "m", "text": "why", "need_bytes": 5}


def test_lines_for_journald_carry_their_priority_on_every_line() -> None:
    formatter = LineFormatter(journald=True)
    assert formatter.format(record("one\ntwo", logging.ERROR)) == "<3>one\n<3>two"
    assert formatter.format(record("x", logging.DEBUG)) == "<7>x"


def test_lines_for_people_carry_time_and_level() -> None:
    text = LineFormatter(journald=False).format(record("hello", logging.WARNING))
    assert text.endswith(" warning hello")
    assert text[2] == text[5] == ":"


def test_journald_is_known_by_the_very_stream() -> None:
    reader, writer = os.pipe()
    status = os.fstat(writer)
    assert is_journald(writer, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
    assert not is_journald(writer, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"})
    assert not is_journald(writer, {})
    os.close(reader)
    os.close(writer)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_a_reader_that_does_not_read_does_not_stop_us_and_learns_what_it_missed(
    pipe: tuple[int, int],
) -> None:
    reader, writer = pipe
    handler = StderrHandler(journald=True, fd=writer)
    for _ in range(200):
        handler.emit(record("x" * 3000))
    while True:
        try:
            os.read(reader, 1 << 20)
        except BlockingIOError:
            break
    handler.emit(record("after"))
    said = os.read(reader, 1 << 20).decode()
    assert "log lines dropped" in said
    assert said.endswith("<6>after\n")


def test_a_long_line_is_cut(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    StderrHandler(journald=True, fd=writer).emit(record("x" * 100_000))
    assert len(os.read(reader, 1 << 20)) <= 4096


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("12:00:01 warning cannot do it", "WARNING", "front: cannot do it"),
        ("12:00:01 info    fine", "INFO", "front: fine"),
        ("Traceback (most recent call last):", "INFO", "front: Traceback (most recent call last):"),
    ],
)
def test_lines_of_our_processes_keep_their_level(
    caplog: pytest.LogCaptureFixture, line: str, level: str, text: str
) -> None:
    with caplog.at_level(logging.DEBUG, "llamad.test"):
        relay(logging.getLogger("llamad.test"), "front", line)
    assert [(entry.levelname, entry.getMessage()) for entry in caplog.records] == [(level, text)]
