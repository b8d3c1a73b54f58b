"""The INI format of llamad.ini and of llama.cpp's model presets, read with the line of everything.

    file    := line*
    line    := blank | comment | "[" section "]" comment? | key "=" value comment?
    comment := (";" | "#") anything
    key     := [A-Za-z_] [A-Za-z0-9_.-]*
    value   := '"' text with \\" \\\\ \\n \\t '"' | "'" text "'" | plain text

Blanks around names, keys and values do not count. A comment after a plain value needs a blank before it, so that `a#b`
is a value: llama.cpp cuts there, which loses half a file name without a word. Section names may hold anything but a
line end: the name ends at the first `]` after which only a comment follows. A file is UTF-8, with or without a byte
order mark, with any line ends.

configparser is not used because it forgets lines, stops at the first fault, and folds case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from llamad.config.settings import Problem
from llamad.config.values import model_name

FILE_BYTES_MAX = 1 << 20
VALUE_CHARS_MAX = 64 * 1024

_BLANKS = " \t\v\f"
_SECTION = re.compile(r"\[(.*?)\][ \t\v\f]*(?:[;#].*)?")
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_.\-]*)[ \t\v\f]*=[ \t\v\f]*(.*)")
_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_COMMENT_AFTER = re.compile(r"(?:^|[ \t\v\f])[;#]")
_LINE_END = re.compile(r"\r\n|\n|\r")
_QUOTED = {
    '"': re.compile(r'"((?:[^"\\]|\\.)*)"[ \t\v\f]*(?:[;#].*)?'),
    "'": re.compile(r"'([^']*)'[ \t\v\f]*(?:[;#].*)?"),
}
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Entry:
    """`key = value` on line `line`, unquoted."""

    key: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Section:
    """A section; name "" is what stands before the first header."""

    name: str
    line: int
    entries: tuple[Entry, ...]


def parse(text: str, file: str) -> tuple[list[Section], list[Problem]]:
    """All sections in order, and everything that is wrong with the file.

    A repeated section or key is a problem that names both lines; the first one is kept. The problem of an entry
    carries the section's name as its model.
    """
    reader = _Reader(file)
    for number, line in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
        reader.take(line.strip(_BLANKS), number)
    return reader.finish(), reader.problems


def decode(data: bytes, file: str) -> tuple[str, list[Problem]]:
    """Bytes to text. What is not UTF-8 is a problem with its line, and the text before that line is given."""
    try:
        return data.decode("utf-8"), []
    except UnicodeDecodeError as error:
        whole = data[: error.start].rpartition(b"\n")[0].decode("utf-8", "replace")
        line = len(_LINE_END.split(data[: error.start].decode("utf-8", "replace")))
        return whole, [Problem(file, line, f"cannot read byte 0x{data[error.start]:02x}: it is not UTF-8")]


def render(name: str, entries: list[tuple[str, str]]) -> str:
    """INI text of one section; `parse` gives the same entries back."""
    lines = [f"[{name}]"] if name else []
    lines += [f"{key} = {quote(value)}" for key, value in entries]
    return "\n".join(lines) + "\n"


def quote(value: str) -> str:
    """`value` as it can stand behind an equals sign, in quotes only where it would be read otherwise."""
    plain = value == value.strip(_BLANKS) and not _COMMENT_AFTER.search(value) and not _LINE_END.search(value)
    if plain and not value.startswith(('"', "'")):
        return value
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'


class _Reader:
    """One pass over the lines of a file."""

    def __init__(self, file: str) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._name = ""
        self._entries: dict[str, Entry] | None = {}
        self._sections: dict[str, tuple[int, dict[str, Entry]]] = {"": (1, self._entries)}

    def take(self, line: str, number: int) -> None:
        if not line or line[0] in ";#":
            return
        try:
            if line[0] == "[":
                self._open(line, number)
            else:
                self._enter(line, number)
        except ValueError as error:
            self.problems.append(Problem(self._file, number, str(error), model=self._name))

    def finish(self) -> list[Section]:
        return [
            Section(name, line, tuple(entries.values()))
            for name, (line, entries) in self._sections.items()
            if name or entries
        ]

    def _open(self, line: str, number: int) -> None:
        # What follows a faulty header belongs to nobody: it must not patch the section before it.
        self._name, self._entries = "", None
        self._name = _section_name(line)
        if self._name in self._sections:
            first = self._sections[self._name][0]
            raise ValueError(f"cannot have the section [{self._name}] twice: it begins on line {first}")
        self._entries = {}
        self._sections[self._name] = (number, self._entries)

    def _enter(self, line: str, number: int) -> None:
        if self._entries is None:
            return
        key, value = _entry(line)
        if key in self._entries:
            raise ValueError(f"cannot set {key!r} twice: it is set on line {self._entries[key].line}")
        self._entries[key] = Entry(key, value, number)


def _section_name(line: str) -> str:
    match = _SECTION.fullmatch(line)
    if not match:
        raise ValueError(f"cannot read {_short(line)} as a section: write [name]")
    return model_name(match.group(1).strip(_BLANKS))


def _entry(line: str) -> tuple[str, str]:
    match = _KEY.fullmatch(line)
    if not match:
        raise ValueError(_why_no_entry(line))
    key, rest = match.groups()
    value = (
        _quoted(rest) if rest[:1] in _QUOTED else _COMMENT_AFTER.split(rest, maxsplit=1)[0].rstrip(_BLANKS)
    )
    if len(value) > VALUE_CHARS_MAX:
        raise ValueError(
            f"cannot read {key!r}: its value has {len(value)} characters, at most {VALUE_CHARS_MAX}"
        )
    return key, value


def _quoted(rest: str) -> str:
    match = _QUOTED[rest[0]].fullmatch(rest)
    if not match:
        raise ValueError(f"cannot read {_short(rest)}: the quote does not end, or something follows it")
    return _ESCAPE.sub(_unescape, match.group(1)) if rest[0] == '"' else match.group(1)


def _unescape(match: re.Match[str]) -> str:
    try:
        return _ESCAPES[match.group(1)]
    except KeyError:
        raise ValueError(
            f"cannot read {match.group(0)!r} between quotes: write \\\\ for a backslash"
        ) from None


def _why_no_entry(line: str) -> str:
    word, equals, _ = line.partition("=")
    word = word.strip(_BLANKS)
    if not equals and _BARE_KEY.fullmatch(word):
        return f"cannot read {_short(word)} without a value: write {word} = true, or a value of its own"
    if equals and _BARE_KEY.fullmatch(word.lstrip("-")):
        return f"cannot read the key {_short(word)}: leave the dashes out"
    return f"cannot read {_short(line)}: expected [section], key = value, or a comment"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
