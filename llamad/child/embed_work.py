"""One HTTP request for vectors, from the event loop to the engine's thread and back."""

from __future__ import annotations

from collections.abc import Callable

from llamad.child.one_work import OneWork
from llamad.engine.vocabulary import Embedded, EmbedRequest


class EmbedWork(OneWork):
    """Close it, whatever happens."""

    async def run(self, request: Callable[[int], EmbedRequest]) -> Embedded:
        """Have the engine do what `request`, given its number, asks for. Raises the LlamadError of one that failed."""
        output = await self.ask(request)
        assert isinstance(output, Embedded)
        return output
