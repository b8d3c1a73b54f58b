"""What a process of the front asks of the kernel for itself."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

from setproctitle import setproctitle

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, death_signal: signal.Signals) -> None:
    """Get `death_signal` when the parent ends; at once if it has ended already.

    The kernel ties this to the thread of the parent that forked, so a parent starts its children from its main thread.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(death_signal)) != 0:
        raise OSError(ctypes.get_errno(), "cannot tie this process to its parent")
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), death_signal)


def raise_open_files_limit() -> int:
    """Lift the soft limit of open files to the hard one, and return it: each relayed stream holds two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def set_title(title: str) -> None:
    """What ps shows."""
    setproctitle(f"llamad: proxy {title}")
