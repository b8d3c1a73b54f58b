"""Chats that go on, in any dialect, by the ids of their answers: what `POST /v1/chat/completions/control` can act on."""

from __future__ import annotations

from contextlib import ExitStack

from llamad.engine.vocabulary import ThoughtLimit, Word


class Thoughts:
    """Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._enough: dict[str, Word | None] = {}

    def enter(self, cleanup: ExitStack, id: str, limit: ThoughtLimit | None) -> None:
        """An answer begins; until `cleanup` is run its thought can be ended, if `limit` lets it be."""
        self._enough[id] = limit.enough if limit is not None else None
        cleanup.callback(self._enough.pop, id, None)

    def end(self, id: str) -> str:
        """Have the thought of this answer end; why that cannot be, in llama-server's words, else ""."""
        if id not in self._enough:
            return "no active completion for this id"
        enough = self._enough[id]
        if enough is None:
            return "reasoning control not enabled for this completion"
        enough.said = True
        return ""
