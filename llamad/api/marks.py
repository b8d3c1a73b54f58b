"""Finding marks in text that is still coming. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Marks:
    """A set of marks. One that begins earlier comes first; of those that begin together the longest counts."""

    def __init__(self, marks: Iterable[str]) -> None:
        self._marks = sorted(set(marks), key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, self._marks)) or "(?!)")
        self._heads = {mark[0] for mark in self._marks}
        self._longest = max(map(len, self._marks), default=0)

    def __bool__(self) -> bool:
        return bool(self._marks)

    def find(self, text: str, ended: bool) -> tuple[int, str | None]:
        """(where the first mark begins, the mark), or (how much of the text surely begins none, None).

        `ended`: no more text will come.
        """
        match = self._any.search(text)
        sure = len(text) if ended else self._open(text)
        if match is None or match.start() >= sure:
            return sure, None
        return match.start(), match[0]

    def _open(self, text: str) -> int:
        """Where the first mark begins that is not whole yet, but could become so."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start] in self._heads:
                tail = text[start:]
                if any(len(mark) > len(tail) and mark.startswith(tail) for mark in self._marks):
                    return start
        return len(text)
