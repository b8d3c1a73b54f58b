"""OpenMP's threads, of which each thread that computes has a team of its own.

libgomp counts the threads of all teams. With more of them than cores it hardly lets them spin where they wait for each
other, and they go to sleep at each of the hundreds of barriers of a token: measured, 26 ms a token instead of 8 where one
thread had loaded and warmed up a model and another one evaluates. So who has done computing lets its team go.
"""

from __future__ import annotations

import ctypes

_LIBRARY = "libgomp.so.1"
_PAUSE_SOFT = 1


def let_go() -> None:
    """End the team of the calling thread; its next computation begins a new one. Nothing with another OpenMP."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return
    pause = getattr(library, "omp_pause_resource_all", None)  # OpenMP 5.0, GCC 9
    if pause is not None:
        pause(_PAUSE_SOFT)
