"""From the bytes of tokens to text that may be sent. Pure.

A token is any piece of a byte sequence: it may end in the middle of a character, and a stop string may begin in one
token and end three tokens later. So two things are held back: bytes until their character is whole, and characters as
long as they could become a stop string. What was given out is final, and the parts put together equal the whole text,
however the bytes were cut.

A stop string is found where it is complete first; of those complete at the same character the longest counts. That is
the only reading of "ends the answer" that does not depend on how the text arrives.

What fills in a block of code may also end where the block does: at the first line that is indented less.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Characters:
    """Incremental UTF-8. Bytes that can never be a character become U+FFFD, as `bytes.decode(errors="replace")` does.

    An unfinished character at the end of the text is dropped: it is the model that was cut off, not the encoding that
    is broken.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> str:
        """The characters that are whole now."""
        return self._decoder.decode(data)

    @property
    def unfinished(self) -> bool:
        """Has a character begun that is not whole?"""
        return bool(self._decoder.getstate()[0])


class StopFilter:
    """Holds back what may still become one of the `stops`, and ends the text where one is complete."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """(text that is final now, the stop string that has ended the text or None). After an end, push no more."""
        if not self._stops:
            return text, None
        text = self._held + text
        found = first_stop(text, self._stops)
        if found is not None:
            start, stop = found
            self._held = ""
            return text[:start], stop
        final = len(text) - _open_length(text, self._stops)
        self._held = text[final:]
        return text[:final], None

    def flush(self) -> str:
        """What was held back for a stop string that never came."""
        held, self._held = self._held, ""
        return held


class Indentation:
    """Lines after the first begin with at least `n` blanks and tabs; 0: however they like. An empty line is one with none."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._blanks: int | None = None

    def push(self, text: str) -> tuple[str, bool]:
        """(the text up to the first line that lacks indentation, whether there is such a line)."""
        if not self._n:
            return text, False
        for place, character in enumerate(text):
            if self._blanks is not None and character in " \t":
                self._blanks += 1
                continue
            if self._blanks is not None and self._blanks < self._n:
                return text[:place], True
            self._blanks = 0 if character == "\n" else None
        return text, False


class TextStream:
    """Pieces of tokens in, text out. `n_indent`: see Indentation."""

    def __init__(self, stops: Sequence[str], n_indent: int = 0) -> None:
        self._characters = Characters()
        self._filter = StopFilter(stops)
        self._indentation = Indentation(n_indent)
        self._n_whole = 0
        self.outdented = False
        """Has the text ended at a line that lacks indentation?"""

    def push(self, piece: bytes) -> tuple[str, str | None]:
        """As StopFilter.push, for the bytes of one more token."""
        text = self._characters.push(piece)
        self._n_whole += len(text)
        final, stop = self._filter.push(text)
        final, self.outdented = self._indentation.push(final)
        return final, None if self.outdented else stop

    @property
    def end(self) -> int:
        """Where the last token ends, in characters from the start; one that has begun counts."""
        return self._n_whole + self._characters.unfinished

    def flush(self) -> str:
        """The rest, when the text has ended without a stop string."""
        return "" if self.outdented else self._indentation.push(self._filter.flush())[0]


def first_stop(text: str, stops: Sequence[str]) -> tuple[int, str] | None:
    """(start, stop string) of the one that is complete first, the longest among equals; None if there is none."""
    found = [(start + len(stop), start, stop) for stop in stops if (start := text.find(stop)) >= 0]
    if not found:
        return None
    _, start, stop = min(found)
    return start, stop


def _open_length(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of `text` that is a proper prefix of a stop string."""
    longest = max(len(stop) for stop in stops) - 1
    for start in range(max(0, len(text) - longest), len(text)):
        end = text[start:]
        if any(stop.startswith(end) for stop in stops):
            return len(end)
    return 0
