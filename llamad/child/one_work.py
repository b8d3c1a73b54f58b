"""A request to the engine that has one answer, its last word: from the event loop to the engine's thread and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from llamad.child.work import Dispatcher, Submitter
from llamad.engine.vocabulary import Failed, Output, Request


class OneWork:
    """Close it, whatever happens."""

    def __init__(self, engine: Submitter, dispatcher: Dispatcher) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._number = 0
        self._answered = False
        self._last: asyncio.Future[Output] = asyncio.get_running_loop().create_future()

    async def ask(self, request: Callable[[int], Request]) -> Output:
        """Have the engine do what `request`, given its number, asks for. Raises the LlamadError of one that failed."""
        self._number = self._dispatcher.register(self)
        self._engine.submit(request(self._number))
        output = await self._last
        if isinstance(output, Failed):
            raise output.error
        return output

    def take(self, outputs: list[Output]) -> None:
        """The last word, which is the only one."""
        self._answered = True
        if not self._last.done():
            self._last.set_result(outputs[0])

    def close(self) -> None:
        """Cancel it if it is still going on."""
        # A task that is cancelled cancels the future that it waits for, so that tells nothing.
        if self._number and not self._answered:
            self._engine.cancel(self._number)
        self._dispatcher.forget(self._number)
