"""A coroutine run from a callback, as far as it goes without waiting."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class Begun:
    """A coroutine that has been begun outside of any task, and waits. Awaiting this goes on with it."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        try:
            yield self._waits_for
        except BaseException:
            self._coroutine.close()
            raise
        yield from self._coroutine.__await__()


def begin(coroutine: Coroutine[Any, Any, None]) -> Begun | None:
    """Run it until it ends or waits; None if it has ended. Raises what it raises."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None
    return Begun(coroutine, waits_for)
