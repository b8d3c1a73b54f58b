"""States in the host's memory: never more than the bound, and what was of use least recently goes first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.host_memory import Blob, Bytes, Checkpoint, HostMemory, Kept, latest


def some(n_bytes: int) -> Bytes:
    return np.zeros(n_bytes, np.uint8)


@given(
    limit=st.integers(0, 50),
    steps=st.lists(st.tuples(st.sampled_from(["add", "touch", "drop"]), st.integers(0, 30)), max_size=60),
)
def test_the_bound_holds_whatever_is_done(limit: int, steps: list[tuple[str, int]]) -> None:
    host = HostMemory(limit)
    blobs: list[Blob] = []
    for what, number in steps:
        if what == "add":
            blob = host.add(some(number))
            assert (blob is None) == (number > limit)
            blobs += [blob] if blob else []
        elif blobs:
            (host.touch if what == "touch" else host.drop)(blobs[number % len(blobs)])
        there = sum(blob.data.nbytes for blob in blobs if blob.data is not None)
        assert host.used_bytes == there <= limit


def test_the_least_recently_used_goes_first() -> None:
    host = HostMemory(30)
    first, second, third = (host.add(some(10)) for _ in range(3))
    assert first
    assert second
    assert third
    host.touch(first)
    host.add(some(10))
    assert (first.data is None, second.data is None, third.data is None) == (False, True, False)


def kept(host: HostMemory, tokens: list[int], n_bytes: int = 5) -> Kept:
    blob = host.add(some(n_bytes))
    assert blob
    entry = Kept(tokens, (), blob)
    host.keep(entry)
    return entry


def test_beginnings_of_what_is_kept_are_not_kept() -> None:
    host = HostMemory(100)
    kept(host, [1, 2])
    other = kept(host, [1, 3])
    longer = kept(host, [1, 2, 3])
    assert host.kept == [other, longer]
    assert host.used_bytes == 10


def test_a_sequence_whose_state_has_gone_is_not_kept() -> None:
    host = HostMemory(12)
    kept(host, [1, 2])
    second = kept(host, [7])
    third = kept(host, [8])
    assert host.kept == [second, third]


@pytest.mark.parametrize(("n_past_max", "expected"), [(1, None), (3, 3), (5, 3), (9, 7)])
def test_the_latest_checkpoint_that_is_there(n_past_max: int, expected: int | None) -> None:
    gone = Blob(some(1))
    gone.data = None
    checkpoints = [Checkpoint(3, Blob(some(1))), Checkpoint(5, gone), Checkpoint(7, Blob(some(1)))]
    found = latest(checkpoints, n_past_max)
    assert (found.n_past if found else None) == expected
