"""The one thing that threads share: what callers want, until the engine's thread takes it.

Callers submit and cancel; the engine takes everything at once, between two steps, and sleeps here when it has nothing
to do. A request that needs preparing is let in first and posted when it is ready; in between it can be cancelled like
any other. The inbox also knows which requests are inside a decode call: when all of them are cancelled (or the engine is
to stop) the call is interrupted, because nobody waits for its result.

Bounded: at most `limit` requests are alive (submitted and not ended) at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from llamad.engine.sampling import Sampler
from llamad.engine.vocabulary import Request


class Job(NamedTuple):
    """A request, with its sampler if that has been made already."""

    request: Request
    sampler: Sampler | None = None


@dataclass(frozen=True, slots=True)
class Mail:
    """What has come in since the last look, jobs in order of arrival. `closed`: stop working."""

    jobs: tuple[Job, ...]
    cancelled: frozenset[int]
    closed: bool


_NO_MAIL = Mail((), frozenset(), closed=False)


class Inbox:
    """See above. `interrupt` ends a running decode call; it is called under the lock and must not block."""

    def __init__(self, limit: int, interrupt: Callable[[], None]) -> None:
        self._limit = limit
        self._interrupt = interrupt
        self._wake = threading.Condition()
        self._jobs: list[Job] = []
        self._cancelled: set[int] = set()
        self._alive: set[int] = set()
        self._decoding: frozenset[int] = frozenset()
        self._closed = False
        self.n_refused = 0
        """Requests that were answered with a refusal instead of coming in."""

    @property
    def n_alive(self) -> int:
        """Requests submitted and not ended."""
        return len(self._alive)

    def alive(self) -> list[int]:
        """These requests, in order."""
        with self._wake:
            return sorted(self._alive)

    @property
    def closed(self) -> bool:
        return self._closed

    def admit(self, id: int) -> bool:
        """Let a request in, to be posted; False when there are too many or the engine is stopping. ids are unique."""
        with self._wake:
            if id in self._alive:
                raise ValueError(f"cannot submit request {id} twice")
            if self._closed or len(self._alive) >= self._limit:
                return False
            self._alive.add(id)
            return True

    def post(self, job: Job) -> None:
        """Hand over a request that was let in."""
        with self._wake:
            if self._wants(job.request.id):
                self._jobs.append(job)
                self._wake.notify()

    def wants(self, id: int) -> bool:
        """Has this request been let in, and neither cancelled nor ended?"""
        with self._wake:
            return self._wants(id)

    def count_refusal(self) -> None:
        """Remember that a request was refused."""
        with self._wake:
            self.n_refused += 1

    def cancel(self, id: int) -> None:
        """Nobody wants this request any more. Unknown ids are ignored: it may have ended just now."""
        with self._wake:
            if id in self._alive:
                self._cancelled.add(id)
                self._wake.notify()
                self._interrupt_if_unwanted()

    def close(self) -> None:
        """Ask the engine to stop."""
        with self._wake:
            self._closed = True
            self._wake.notify()
            self._interrupt_if_unwanted()

    def take(self, wait: bool) -> Mail:
        """Everything that came in; with `wait`, sleep until there is something."""
        # Looked at without the lock, once a step: what comes in just now is taken a step later.
        if not (wait or self._jobs or self._cancelled or self._closed):
            return _NO_MAIL
        with self._wake:
            while wait and not (self._jobs or self._cancelled or self._closed):
                self._wake.wait()
            jobs, self._jobs = tuple(self._jobs), []
            cancelled, self._cancelled = frozenset(self._cancelled), set()
            self._alive -= cancelled
            wanted = tuple(job for job in jobs if job.request.id not in cancelled)
            return Mail(wanted, cancelled, self._closed)

    def end(self, ids: Collection[int]) -> None:
        """These requests have had their last word."""
        with self._wake:
            self._alive.difference_update(ids)
            self._cancelled.difference_update(ids)

    def enter(self, ids: Collection[int]) -> bool:
        """A decode call for these requests begins; False if by now nobody wants it."""
        with self._wake:
            decoding = frozenset(ids)
            if self._closed or decoding <= self._cancelled:
                return False
            self._decoding = decoding
            return True

    def leave(self) -> None:
        """The decode call is over."""
        with self._wake:
            self._decoding = frozenset()

    def _wants(self, id: int) -> bool:
        return id in self._alive and id not in self._cancelled

    def _interrupt_if_unwanted(self) -> None:
        if self._decoding and (self._closed or self._decoding <= self._cancelled):
            self._interrupt()
