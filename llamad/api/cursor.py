"""A place in text that is still coming, and the steps that a reader takes from there.

Each step is a generator that pauses where it needs more text. So a reader is written as if all of it were there.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Walk = Generator[None, None, T]
"""Yields where more text is needed."""

# Blanks are free beside these, and wherever the canonical text has some.
_JOINTS = frozenset("{}[],:")


class Cursor:
    """The text that is not settled yet, and a place in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        """What is not settled yet; before `_at` it has been looked at."""
        self._at = 0
        self._ended = False
        self._cut = False
        """Has the last literal been missing only because the text ended?"""

    def _literal(self, literal: str) -> Walk[bool]:
        """Move over `literal`, whose blanks may vary; False, and nothing moves, if it is not there."""
        start, joint, self._cut = self._at, True, False
        for char in literal:
            if char.isspace():
                joint = True
                continue
            if joint or char in _JOINTS:
                yield from self._skip_blanks()
            if (found := (yield from self._peek())) != char:
                self._at, self._cut = start, not found
                return False
            self._at += 1
            joint = char in _JOINTS
        return True

    def _word(self, what: str) -> Walk[bool]:
        """An id or a number, which nobody needs."""
        start = self._at
        while (char := (yield from self._peek())) and (char.isdigit() or (what == "id" and char.isalnum())):
            self._at += 1
        return self._at > start

    def _until(self, mark: str) -> Walk[str]:
        """All text before `mark`, which stays; or all there will ever be."""
        while (end := self._text.find(mark, self._at)) < 0 and not self._ended:
            yield
        end = len(self._text) if end < 0 else end
        text, self._at = self._text[self._at : end], end
        return text

    def _newline(self, literal: str) -> Walk[None]:
        """The one newline that a literal ends with: blanks after it belong to the value."""
        if literal[-1:] == "\n" and (yield from self._peek()) == "\n":
            self._at += 1

    def _skip_blanks(self) -> Walk[None]:
        while (yield from self._peek()).isspace():
            self._at += 1

    def _peek(self) -> Walk[str]:
        """The character at the cursor, "" at the end of the message."""
        while self._at >= len(self._text) and not self._ended:
            yield
        return self._text[self._at : self._at + 1]

    def _lead(self) -> int:
        """How many blanks there are at the start."""
        return len(self._text) - len(self._text.lstrip())

    def _settle(self, size: int) -> None:
        """So much text has been dealt with."""
        self._text = self._text[size:]
        self._at = 0
