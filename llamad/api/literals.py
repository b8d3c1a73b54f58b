"""Arguments that are written like JSON, but not in JSON: strings in other quotes, names without any, other words.

    call:weather{city:<|"|>Rome<|"|>,days:3}                          Gemma 4
    weather(city="Rome", days=3, sure=True)                            LFM2

`LiteralReader` makes JSON of such text while it comes. Once it has ended, what it has made is JSON, whatever the text was:
a value that is missing is null, a word that means nothing is a text, brackets count more than their shape. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from llamad.api.arguments import as_json, quoted
from llamad.api.marks import Marks

_WORDS = {"True": "true", "False": "false", "None": "null"}
_OPENERS = {"{": ("}", True), "[": ("]", False), "(": ("]", False)}
"""What begins a value of several: how it ends in JSON, and whether its values have names."""
_CLOSERS = "}])"
_NAME = re.compile(r"[^\s:=,\[\]{}()]+")
_WORD = re.compile(r"[^,\[\]{}()]+")
_LETTERS = {"n": "\\n", "t": "\\t", "r": "\\r", "b": "\\b", "f": "\\f", '"': '\\"', "'": "'", "\\": "\\\\"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([^xu])|([xu]))", re.DOTALL)
_ESCAPE_CHARS_MAX = 6


@dataclass(frozen=True)
class Literals:
    """The arguments of a call stand between `opens` and `closes`, each as its name, `assigns`, and its value.

    `quotes`: what may be around a string, the family's own first. `python`: a backslash means something in strings, and
    values within values are JSON, too; else a string is what stands between its quotes, and names have none.
    `by_name`: they come in the order of the alphabet.
    """

    opens: str
    closes: str
    assigns: str
    quotes: tuple[str, ...]
    python: bool = False
    by_name: bool = False

    def written(self, arguments: Mapping[str, Any]) -> str:
        """Arguments as the family writes them."""
        apart = ", " if self.python else ","
        pairs = (f"{name}{self.assigns}{self.value(each)}" for name, each in self.ordered(arguments))
        return self.opens + apart.join(pairs) + self.closes

    def ordered(self, named: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Names and what they are for, in the family's order."""
        return sorted(named.items(), key=lambda pair: pair[0].lower()) if self.by_name else [*named.items()]

    def value(self, value: Any) -> str:
        """A value as the family writes it."""
        if self.python or not isinstance(value, str | dict | list):
            return msgspec.json.encode(value).decode()
        if isinstance(value, str):
            return self.quotes[0] + value + self.quotes[0]
        if isinstance(value, list):
            return "[" + ",".join(map(self.value, value)) + "]"
        return "{" + ",".join(f"{name}:{self.value(each)}" for name, each in self.ordered(value)) + "}"


@dataclass(slots=True)
class _Several:
    """Values that are open. `closes`: in JSON; `named`: each has a name; `empty`: there is none so far."""

    closes: str
    named: bool
    empty: bool = True


class LiteralReader:
    """Reads the arguments of one call, from `opens` to `closes`. `ended`: it has come to that."""

    def __init__(self, literals: Literals) -> None:
        self._literals = literals
        self._quotes = Marks(literals.quotes)
        self._open: list[_Several] = []
        self._wants = "value"
        """What comes next: a `name`, what `assigns`, a `value`, or what comes `after` it."""
        self._quote = ""
        """What ends the string that is open."""
        self._marks = self._quotes
        """What to look out for in it."""
        self._name: str | None = None
        """The name that this string is, in JSON, as far as it has come."""
        self.ended = False

    def feed(self, text: str, last: bool) -> tuple[int, str]:
        """(how much of the text is dealt with, the JSON that it makes); what is left must be fed again, with more.

        `last`: there will be no more.
        """
        at, made = 0, []
        while at < len(text) and not self.ended:
            step = self._step(text[at:], last)
            if step is None:
                break
            at += step[0]
            made.append(step[1])
        return at, "".join(made)

    def _step(self, text: str, last: bool) -> tuple[int, str] | None:
        """(characters, JSON) of the next bit of text; None if it takes more to say."""
        if self._quote:
            return self._in_string(text, last)
        char = text[0]
        if char.isspace():
            return 1, ""
        if not self._open:
            return 1, self._begin("}", True)
        if char in _CLOSERS:
            return 1, self._close()
        match self._wants:
            case "after":
                self._wants = self._next()
                return int(char == ","), ""
            case "assigns":
                return (1, self._turn("value")) if char in ":=" else (0, self._turn("after", "null"))
        if char == ",":
            missing = self._wants == "value" and self._open[-1].named
            return (0, self._turn("after", "null")) if missing else (1, "")
        size, quote = self._quotes.find(text, last)
        if size == 0:
            return None if quote is None else (len(quote), self._begin_string(quote))
        return self._bare_name(text, last) if self._wants == "name" else self._bare_value(text, last)

    # ---- what has no quotes

    def _bare_name(self, text: str, last: bool) -> tuple[int, str] | None:
        if text[0] in _OPENERS:
            return 1, ""
        match = _NAME.match(text)
        size = match.end() if match else 0
        if size == len(text) and not last:
            return None
        return size, self._named(quoted(text[:size]))

    def _bare_value(self, text: str, last: bool) -> tuple[int, str] | None:
        if text[0] in _OPENERS:
            return 1, self._begin(*_OPENERS[text[0]])
        match = _WORD.match(text)
        size = match.end() if match else 0
        if size == len(text) and not last:
            return None
        word = text[:size].strip()
        return size, self._apart() + self._turn("after", _WORDS.get(word) or as_json(word))

    # ---- strings

    def _begin_string(self, quote: str) -> str:
        self._quote = quote
        self._marks = Marks([quote, "\\"] if self._literals.python else [quote])
        if self._wants == "name":
            self._name = '"'
            return ""
        return self._apart() + '"'

    def _in_string(self, text: str, last: bool) -> tuple[int, str] | None:
        size, mark = self._marks.find(text, last)
        if size:
            return size, self._more(quoted(text[:size])[1:-1])
        if mark == "\\":
            return self._escape(text, last)
        if mark is None:
            return None
        size, self._quote = len(self._quote), ""
        if self._name is None:
            return size, self._turn("after", '"')
        name, self._name = self._name, None
        return size, self._named(name + '"')

    def _escape(self, text: str, last: bool) -> tuple[int, str] | None:
        match = _ESCAPE.match(text)
        if match is None or (match[4] and len(text) < _ESCAPE_CHARS_MAX and not last):
            return (1, self._more("\\\\")) if last else None
        if match[1] or match[2]:
            return match.end(), self._more(f"\\u{match[1] or match[2]:0>4}")
        char = match[3] or match[4]
        return match.end(), self._more(_LETTERS.get(char) or "\\\\" + quoted(char)[1:-1])

    def _more(self, json: str) -> str:
        if self._name is None:
            return json
        self._name += json
        return ""

    # ---- the shape of it

    def _begin(self, closes: str, named: bool) -> str:
        apart = self._apart()
        self._open.append(_Several(closes, named))
        return apart + self._turn(self._next(), "{" if named else "[")

    def _close(self) -> str:
        several = self._open.pop()
        missing = "null" if several.named and self._wants in ("assigns", "value") else ""
        self.ended = not self._open
        return self._turn("after", missing + several.closes)

    def _next(self) -> str:
        return "name" if self._open[-1].named else "value"

    def _named(self, name: str) -> str:
        several = self._open[-1]
        apart = "" if several.empty else ", "
        several.empty = False
        return self._turn("assigns", apart + name + ": ")

    def _apart(self) -> str:
        """What comes before a value that has no name."""
        if not self._open or self._open[-1].named:
            return ""
        several = self._open[-1]
        apart = "" if several.empty else ", "
        several.empty = False
        return apart

    def _turn(self, wants: str, json: str = "") -> str:
        self._wants = wants
        return json
