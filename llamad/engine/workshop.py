"""Where samplers are made that take longer to make than a step may be late: those with rules, and those with DRY.

One thread, beside the engine's. It prepares the vocabulary for llguidance when the first rules come (seconds, for a large
one) and compiles rules (a millisecond, at worst a second); meanwhile the slots go on. Compiling descends as deep as the
rules are chained, and its language has no net under the stack, so this thread has a large one and rules have a bound.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from llamad.engine.vocabulary import GenerateRequest

# The deepest rules of that size took 14 KiB of stack a level, on 45 characters. It is address space, not memory.
_STACK_BYTES = 512 << 20


class Workshop:
    """`make` does the work for one request, on the workshop's thread. The thread begins with the first one."""

    def __init__(self, make: Callable[[GenerateRequest], None]) -> None:
        self._make = make
        self._requests: queue.SimpleQueue[GenerateRequest | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None

    @staticmethod
    def is_for(request: GenerateRequest) -> bool:
        """Does the request belong here?"""
        return request.rules is not None or request.sampling.dry_multiplier != 0

    def put(self, request: GenerateRequest) -> None:
        """Hand in a request; after `close` nothing comes of it. Bounded by what the engine lets in."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="workshop", daemon=True)
                _start_with_large_stack(self._thread)
            self._requests.put(request)

    def close(self) -> None:
        """Finish what is there, and wait for it."""
        with self._lock:
            self._closed = True
            self._requests.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            self._make(request)


def _start_with_large_stack(thread: threading.Thread) -> None:
    before = threading.stack_size(_STACK_BYTES)
    try:
        thread.start()
    finally:
        threading.stack_size(before)
