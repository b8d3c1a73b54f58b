"""`verbose: true`: OpenAI's documents with llama.cpp's own inside, as `__verbose`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llamad.api.answer import Dialect, Framed, Whole
from llamad.engine.vocabulary import Finished, Progress, Text
from llamad.errors import LlamadError


class Verbose(Framed):
    """A dialect with another one's documents inside its own."""

    def __init__(self, dialect: Dialect, inner: Dialect) -> None:
        self._dialect = dialect
        self._inner = inner
        self.framing = dialect.framing

    def whole(self, answers: Sequence[Whole]) -> Any:
        return self._dialect.whole(answers) | {"__verbose": self._inner.whole(answers)}

    def opening(self) -> list[Any]:
        return self._dialect.opening()

    def piece(self, index: int, text: Text) -> list[Any]:
        return _with(self._dialect.piece(index, text), self._inner.piece(index, text))

    def progress(self, index: int, progress: Progress) -> list[Any]:
        return _with(self._dialect.progress(index, progress), self._inner.progress(index, progress))

    def ending(self, index: int, finished: Finished) -> list[Any]:
        return _with(self._dialect.ending(index, finished), self._inner.ending(index, finished))

    def closing(self, finished: Sequence[Finished]) -> list[Any]:
        return self._dialect.closing(finished)

    def failure(self, error: LlamadError) -> Any:
        return self._dialect.failure(error)


def _with(documents: list[Any], inner: list[Any]) -> list[Any]:
    """The first document carries it."""
    return [documents[0] | {"__verbose": inner[0]}, *documents[1:]] if documents else []
