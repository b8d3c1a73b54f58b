"""From requests of the event loop to sequences of the engine's thread, and back.

The engine delivers the outputs of one step in one call; the dispatcher takes them over with one wake-up of the loop and
hands each to the work that it belongs to. A work is all that one HTTP request has the engine do. What it holds is
bounded by the context: an answer cannot be longer, however slowly its client reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from llamad.api.answer import Whole
from llamad.api.generation import Generation
from llamad.engine.vocabulary import Failed, Finished, Output, Progress, Request, Text

Part = tuple[int, Text | Progress | Finished]
"""What is new of a work: the index of the sequence, and the output."""


class Submitter(Protocol):
    """What a work needs of the engine."""

    def submit(self, request: Request, /) -> None: ...

    def cancel(self, id: int, /) -> None: ...


class Receiver(Protocol):
    """A work, for whoever has a step's outputs for it."""

    def take(self, outputs: list[Output], /) -> None: ...


class Dispatcher:
    """Sorts outputs to works by the number of their request. All but `deliver` belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._works: dict[int, Receiver] = {}
        self._last_number = 0

    def deliver(self, outputs: list[Output]) -> None:
        """Take the outputs of one step, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._sort, outputs)
        except RuntimeError:
            pass  # The loop is closed: nobody waits any more.

    def register(self, work: Receiver) -> int:
        """A number for a new request of this work."""
        self._last_number += 1
        self._works[self._last_number] = work
        return self._last_number

    def forget(self, number: int) -> None:
        """Late outputs of this request are dropped."""
        self._works.pop(number, None)

    def _sort(self, outputs: list[Output]) -> None:
        each: dict[Receiver, list[Output]] = {}
        for output in outputs:
            work = self._works.get(output.id)
            if work is not None:
                each.setdefault(work, []).append(output)
        for work, its in each.items():
            work.take(its)


class Work:
    """The sequences of one HTTP request, from submit to their last words. Close it, whatever happens."""

    def __init__(self, engine: Submitter, dispatcher: Dispatcher) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._open: dict[int, int] = {}
        self._arrived: list[Part] = []
        self._failure: Failed | None = None
        self._tell: Callable[[], None] | None = None

    def start(self, generation: Generation, prompts: Sequence[tuple[int, ...]]) -> None:
        """Submit a family of `n` requests for each prompt; the answers to a prompt have consecutive indexes."""
        n = generation.n
        for index, tokens in enumerate(prompts):
            numbers = [self._dispatcher.register(self) for _ in range(n)]
            family = numbers[0] if n > 1 else 0
            for place, number in enumerate(numbers):
                self._open[number] = index * n + place
                self._engine.submit(generation.request(number, tokens, family, place))

    @property
    def ended(self) -> bool:
        """Whether all that will ever come has been taken."""
        return not self._open and not self._arrived and self._failure is None

    @property
    def last_has_come(self) -> bool:
        """Whether nothing more will come than has."""
        return not self._open or self._failure is not None

    @property
    def has_news(self) -> bool:
        """Whether there is something to take."""
        return bool(self._arrived) or self._failure is not None

    def arrived(self) -> list[Part]:
        """Take what is new, in order. Raises the LlamadError of a sequence that failed, when all else is taken."""
        if not self._arrived and self._failure is not None:
            raise self._failure.error
        arrived, self._arrived = self._arrived, []
        return arrived

    def listen(self, tell: Callable[[], None]) -> None:
        """Have `tell` called whenever a step has brought something."""
        self._tell = tell

    async def first(self, within_s: float | None = None) -> None:
        """Wait until there is something new, or `within_s` is over. Raises the LlamadError of a sequence that failed."""
        if not self.has_news:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            timer = None if within_s is None else loop.call_later(within_s, _wake, waiter)
            self.listen(partial(_wake, waiter))
            try:
                await waiter
            finally:
                self._tell = None
                if timer is not None:
                    timer.cancel()
        if not self._arrived and self._failure is not None:
            raise self._failure.error

    async def whole(self) -> list[Whole]:
        """All of it, in the order of the prompts. Raises as `first` does."""
        texts: dict[int, list[Text]] = {}
        last: dict[int, Finished] = {}
        while not self.ended:
            await self.first()
            for index, output in self.arrived():
                if isinstance(output, Text):
                    texts.setdefault(index, []).append(output)
                elif isinstance(output, Finished):
                    last[index] = output
        return [_whole(texts.get(index, []), last[index]) for index in sorted(last)]

    def take(self, outputs: list[Output]) -> None:
        """What a step has brought of the sequences."""
        for output in outputs:
            if isinstance(output, Text | Progress):
                self._arrived.append((self._open[output.id], output))
            elif isinstance(output, Finished):
                self._arrived.append((self._open[output.id], output))
                self._end(output.id)
            elif isinstance(output, Failed):
                self._failure = self._failure or output
                self._end(output.id)
        if self._tell is not None:
            self._tell()

    def close(self) -> None:
        """Cancel what is still going on, and let go of who listens."""
        self._tell = None
        for number in tuple(self._open):
            self._engine.cancel(number)
            self._end(number)

    def _end(self, number: int) -> None:
        del self._open[number]
        self._dispatcher.forget(number)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _whole(texts: Sequence[Text], finished: Finished) -> Whole:
    likelihoods = tuple(each for text in texts for each in text.likelihoods)
    ids = tuple(id for text in texts for id in text.ids) + finished.ids
    return Whole("".join(text.text for text in texts), finished, likelihoods, ids, tuple(texts))
