"""A file that somebody is writing is waited for, never applied in half."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llamad.config.files import QUIET_OPEN_END_S, QUIET_S, WAIT_S, read_settled, read_whole

START = 1_000_000.0


class Time:
    """A clock that stands still but for sleeping; `plan` says what a writer does at which moment."""

    def __init__(self, path: Path, plan: list[tuple[float, Callable[[], object]]]) -> None:
        self.now_s = START
        self._path = path
        self._plan = plan

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        while self._plan and self.now_s >= START + self._plan[0][0]:
            at_s, act = self._plan.pop(0)
            act()
            os.utime(self._path, (START + at_s, START + at_s))

    def read(self) -> bytes:
        return read_settled(str(self._path), 1000, now=self.now, sleep=self.sleep)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.ini"


def written(path: Path, data: bytes, age_s: float) -> None:
    path.write_bytes(data)
    os.utime(path, (START - age_s, START - age_s))


def appender(path: Path, data: bytes) -> Callable[[], object]:
    def append() -> None:
        with path.open("ab") as file:
            file.write(data)

    return append


def test_a_quiet_file_is_read_at_once(path: Path) -> None:
    written(path, b"a = 1\n", age_s=60)
    time = Time(path, [])
    assert time.read() == b"a = 1\n"
    assert time.now_s == START


def test_two_halves(path: Path) -> None:
    written(path, b"a = 1\n", age_s=0)
    time = Time(path, [(0.2, appender(path, b"b = 2\n"))])
    assert time.read() == b"a = 1\nb = 2\n"
    assert time.now_s - START >= 0.2 + QUIET_S


def test_truncated_and_written_again(path: Path) -> None:
    written(path, b"", age_s=0)
    assert Time(path, [(0.1, lambda: path.write_bytes(b"new\n"))]).read() == b"new\n"


def test_a_line_without_an_end_waits_longer_but_is_taken(path: Path) -> None:
    written(path, b"a = 1", age_s=QUIET_S + 0.01)
    time = Time(path, [(0.5, appender(path, b"2\n"))])
    assert time.read() == b"a = 12\n"
    written(path, b"a = 1", age_s=QUIET_OPEN_END_S + 0.01)
    assert Time(path, []).read() == b"a = 1"


def test_renamed_into_place_between_two_looks(path: Path) -> None:
    written(path, b"old\n", age_s=0)
    other = path.with_suffix(".new")
    written(other, b"new\n", age_s=60)
    assert Time(path, [(0.1, lambda: other.rename(path))]).read() == b"new\n"


def test_a_writer_who_never_stops(path: Path) -> None:
    written(path, b"x\n", age_s=0)
    time = Time(path, [(at / 10, appender(path, b"x\n")) for at in range(1, 200)])
    with pytest.raises(ValueError, match="still being written after 5 s"):
        time.read()
    assert time.now_s - START <= WAIT_S + 0.1


def test_a_time_stamp_from_the_future_does_not_block(path: Path) -> None:
    written(path, b"a\n", age_s=-3600)
    assert Time(path, []).read() == b"a\n"


def test_bounds(path: Path) -> None:
    path.write_bytes(b"x" * 1001)
    with pytest.raises(ValueError, match="over 1000 bytes"):
        read_whole(str(path), 1000)
    assert read_whole(str(path), 1001) == b"x" * 1001


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it is a directory"):
        read_whole(str(tmp_path), 10)
    with pytest.raises(ValueError, match="no regular file"):
        read_whole("/dev/zero", 10)
    assert read_whole("/dev/null", 10) == b""


def test_a_file_without_a_single_byte_is_taken_for_one_that_was_cut_short(path: Path) -> None:
    written(path, b"", age_s=60)
    with pytest.raises(ValueError, match="empty, as if it had been cut short"):
        Time(path, []).read()


def test_nothing_at_all_may_be_named_on_purpose() -> None:
    assert read_settled(os.devnull, 1000) == b""
