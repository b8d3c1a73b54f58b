"""Kinds of option values: how text becomes a typed value, and the value text again.

Each kind has `parse(text) -> value`, which raises ValueError with a reason that completes "cannot set this option:",
and `render(value) -> text`, with `parse(render(value)) == value` for every value that `parse` can give. Parsing is strict:
what is not plainly of the kind is refused, never guessed.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from llamad.config.settings import OptionValue
from llamad.units import parse_bytes, parse_duration

TRUE_WORDS = ("true", "1", "on", "enabled")
FALSE_WORDS = ("false", "0", "off", "disabled")
SECONDS_MAX = 10 * 365 * 86400.0
LIST_ITEMS_MAX = 256
NAME_CHARS_MAX = 512
JSON_CHARS_MAX = 8 * 1024

_N = TypeVar("_N", int, float)
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")


class Kind(Protocol):
    """What the option table knows of a value."""

    def parse(self, text: str) -> OptionValue:
        """The value of `text`; ValueError if it has none."""
        ...

    def render(self, value: OptionValue) -> str:
        """Text that parses to `value`."""
        ...

    @property
    def hint(self) -> str:
        """The placeholder in help texts, "" for a flag."""
        ...


@dataclass(frozen=True, slots=True)
class Flag:
    """`true/false/1/0/on/off` (and llama.cpp's `enabled/disabled`), in any case."""

    hint: str = ""

    def parse(self, text: str) -> bool:
        word = text.lower()
        if word in TRUE_WORDS:
            return True
        if word in FALSE_WORDS:
            return False
        raise ValueError(f"{text!r} is neither yes nor no: write true, false, 1, 0, on or off")

    def render(self, value: OptionValue) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `least` to `most`; `words` are names for some of them (`all` for -1)."""

    least: int = 0
    most: int = 2**31 - 1
    words: Mapping[str, int] = field(default_factory=dict)
    hint: str = "N"

    def parse(self, text: str) -> int:
        if text.lower() in self.words:
            return self.words[text.lower()]
        if not _WHOLE.fullmatch(text):
            also = "".join(f" or {word}" for word in self.words if word.isalpha())
            raise ValueError(f"{text!r} is no whole number{also}")
        return _within(int(text), self.least, self.most)

    def render(self, value: OptionValue) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Number:
    """A decimal number from `least` to `most`, never `nan` or `inf`."""

    least: float = -math.inf
    most: float = math.inf
    hint: str = "N"

    def parse(self, text: str) -> float:
        if not _NUMBER.fullmatch(text):
            raise ValueError(f"{text!r} is no number")
        value = float(text)
        if math.isinf(value):
            raise ValueError(f"{text} is too large")
        return _within(value, self.least, self.most)

    def render(self, value: OptionValue) -> str:
        return repr(value).removesuffix(".0")


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds: `30`, `1.5s`, `500ms`, `10m`, `2h`. Zero and up, at most ten years; `words` are names for numbers."""

    words: Mapping[str, float] = field(default_factory=dict)
    hint: str = "S"

    def parse(self, text: str) -> float:
        if text.lower() in self.words:
            return self.words[text.lower()]
        if _NUMBER.fullmatch(text) and text.startswith("-"):
            raise ValueError(f"{text} is too small: at least 0")
        try:
            seconds = parse_duration(text)
        except ValueError:
            raise ValueError(f"{text!r} is no time: write for example 30, 30s, 10m or 2h") from None
        return _within(seconds, 0.0, SECONDS_MAX)

    def render(self, value: OptionValue) -> str:
        for word, number in self.words.items():
            if value == number:
                return word
        # Fixed notation, because the notation of durations has no exponents.
        return f"{value:.12f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes: a bare number counts in `unit_bytes`, else `512M`, `2GiB`. `words` are names for numbers."""

    unit_bytes: int = 1
    most: int = 2**50
    words: Mapping[str, int] = field(default_factory=dict)
    hint: str = "BYTES"

    def parse(self, text: str) -> int:
        if text.lower() in self.words:
            return self.words[text.lower()]
        if _WHOLE.fullmatch(text):
            return _within(int(text) * self.unit_bytes, 0, self.most)
        try:
            if _NUMBER.fullmatch(text):
                raise ValueError
            count = parse_bytes(text)
        except ValueError:
            raise ValueError(f"{text!r} is no size: write for example 4096, 512M or 2GiB") from None
        return _within(count, 0, self.most)

    def render(self, value: OptionValue) -> str:
        for word, number in self.words.items():
            if value == number:
                return word
        return f"{value}B"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of `words`, exactly; `same` maps other spellings to them."""

    words: tuple[str, ...]
    same: Mapping[str, str] = field(default_factory=dict)

    @property
    def hint(self) -> str:
        return "|".join(self.words) if len(self.words) <= 4 else "WORD"

    def parse(self, text: str) -> str:
        word = self.same.get(text.lower(), text.lower())
        if word not in self.words:
            raise ValueError(f"{text!r} is not one of {', '.join(self.words)}")
        return word

    def render(self, value: OptionValue) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Text:
    """Any text; `may_be_empty` decides on the empty one. `path` marks names of files, `directory` those of directories."""

    hint: str = "TEXT"
    may_be_empty: bool = True
    path: bool = False
    directory: bool = False

    def parse(self, text: str) -> str:
        if not text and not self.may_be_empty:
            raise ValueError("its value is empty")
        if "\0" in text:
            raise ValueError("its value has a NUL character in it")
        return text

    def render(self, value: OptionValue) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Matching:
    """Text that matches `pattern`, a regular expression that `what` names in words."""

    pattern: str
    what: str
    hint: str = "TEXT"

    def parse(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"{text!r} is not {self.what}")
        return text

    def render(self, value: OptionValue) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Mode:
    """Rights of a file in octal digits. Whoever may connect to a socket has to be able to write to it."""

    hint: str = "MODE"

    def parse(self, text: str) -> int:
        if not re.fullmatch(r"0?[0-7]{3}", text):
            raise ValueError(f"{text!r} is no mode: write three octal digits, for example 660")
        return int(text, 8)

    def render(self, value: OptionValue) -> str:
        return f"{value:03o}"


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value, kept as JSON text; what is no JSON is text itself, so that `bob` needs no quotes but `"1"` does."""

    hint: str = "JSON"

    def parse(self, text: str) -> str:
        if len(text) > JSON_CHARS_MAX:
            raise ValueError(f"its value has {len(text)} characters, at most {JSON_CHARS_MAX}")
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            value = text
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def render(self, value: OptionValue) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a JSON object, which `what` names in words; "" for none."""

    hint: str = "JSON"
    what: str = "JSON schema"

    def parse(self, text: str) -> str:
        try:
            schema = json.loads(text or "{}", parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise ValueError(f"{text[:40]!r} is no JSON") from None
        if not isinstance(schema, dict):
            raise ValueError(f"{text[:40]!r} is no {self.what}, which is an object")
        return text

    def render(self, value: OptionValue) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Template:
    """Jinja source, or the name `chatml`. llama.cpp has more built-in names; they are not taken for source."""

    hint: str = "JINJA"

    def parse(self, text: str) -> str:
        if text != "chatml" and "{{" not in text and "{%" not in text:
            raise ValueError(f"{text[:40]!r} is neither jinja source nor chatml")
        return text

    def render(self, value: OptionValue) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Listing:
    """Texts with commas between; blanks around them do not count, empty ones are refused.

    Each has to match `item`, a regular expression that `what` names in words.
    """

    hint: str = "A,B"
    item: str = ""
    what: str = ""

    def parse(self, text: str) -> tuple[str, ...]:
        if not text.strip():
            return ()
        items = tuple(item.strip() for item in text.split(","))
        if "" in items:
            raise ValueError(f"{text!r} has nothing between two commas")
        if len(items) > LIST_ITEMS_MAX:
            raise ValueError(f"{len(items)} items are too many: at most {LIST_ITEMS_MAX}")
        for item in items if self.item else ():
            if not re.fullmatch(self.item, item):
                raise ValueError(f"{item!r} is not {self.what}")
        return items

    def render(self, value: OptionValue) -> str:
        return ",".join(value) if isinstance(value, tuple) else str(value)


def model_name(text: str) -> str:
    """`text` if it can name a model. Any printable text can: slashes, colons, blanks and other scripts are fine."""
    if not text:
        raise ValueError("cannot use an empty name")
    if len(text) > NAME_CHARS_MAX:
        raise ValueError(f"cannot use a name of {len(text)} characters: at most {NAME_CHARS_MAX}")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise ValueError(f"cannot use the name {text!r}: it has control characters or is not UTF-8")
    return text


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON")


def _within(value: _N, least: float, most: float) -> _N:
    if value < least:
        raise ValueError(f"{value} is too small: at least {least}")
    if value > most:
        raise ValueError(f"{value} is too large: at most {most}")
    return value
