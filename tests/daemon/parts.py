"""What tests of the shell share: a clock that is moved by hand, and a kernel whose n-th call fails."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from typing import Any

from llamad.daemon.kernel import Kernel
from llamad.daemon.loop import Loop


class HandClock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now


class FailingKernel(Kernel):
    """The real kernel, but call number `fail_at` (from 1) of those that can fail fails with EMFILE."""

    _CAN_FAIL = frozenset(("spawn", "pidfd_open", "pipe", "set_nonblocking", "accept", "connect"))

    def __init__(self, fail_at: int) -> None:
        self.calls: list[str] = []
        self._fail_at = fail_at

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        if name not in FailingKernel._CAN_FAIL:
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) == self._fail_at:
                raise OSError(errno.EMFILE, f"{name}, call {self._fail_at}")
            return attribute(*arguments, **named)

        return call


def open_fds() -> set[str]:
    """Descriptors of this process and what they are; the one that lists them is not among them.

    What earlier tests left to the garbage collector goes first, so that it does not go between two counts.
    """
    gc.collect()
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:
            continue
    return found


def children_left() -> bool:
    """Whether this process has any child, zombies included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def run_until(loop: Loop, condition: Callable[[], object], within_s: float = 10.0) -> None:
    """Turn the loop until `condition` holds; fails when it does not in time, by the wall clock."""
    import time

    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        loop.run_once(0.02)
