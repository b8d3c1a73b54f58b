"""OpenMP's threads, of which each thread that computes has a team of its own.

libgomp counts the threads of all teams. With more of them than cores it hardly lets them spin where they wait for each
other, and they go to sleep at each of the hundreds of barriers of a token: measured, 26 ms a token instead of 8 where one
thread had loaded and warmed up a model and another one evaluates. So who has done computing lets its team go; and a team
that does nothing shortens the spinning of another, where that is of use (`spinning`).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_LIBRARY = "libgomp.so.1"
_PAUSE_SOFT = 1


def begin(n_threads: int) -> bool:
    """Have a team of so many threads of the calling thread's own, asleep; False without libgomp."""
    library = _libgomp()
    if library is None:
        return False
    # A parallel region (libgomp's ABI for compilers) that measures an empty string in each thread.
    nothing = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p)
    library.GOMP_parallel(nothing, ctypes.c_char_p(b""), ctypes.c_uint(n_threads), ctypes.c_uint(0))
    return True


def let_go() -> None:
    """End the team of the calling thread; its next computation begins a new one. Nothing with another OpenMP."""
    library = _libgomp()
    if library is not None:
        library.omp_pause_resource_all(_PAUSE_SOFT)


@cache
def _libgomp() -> Any:
    """The library, None where it is not there or older than OpenMP 5.0 (GCC 9)."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    return (
        library if hasattr(library, "omp_pause_resource_all") and hasattr(library, "GOMP_parallel") else None
    )
