"""llama.cpp's grammar notation, GBNF, as llguidance reads it. Pure.

    root ::= "yes" | "no" [.!]? # a comment
    item ::= ("- " [^\\n]+ "\\n"){1,3}

llguidance's own notation has a lexer below its parser, which takes the longest lexeme and never goes back; GBNF has no
lexer, so `[a-z]* "end"` must match `trend`. Therefore every lexeme that is written here is a single character: then there
is nothing to choose for the lexer, and the parser, which follows all readings at once, decides exactly as GBNF says.
"""

from __future__ import annotations

import string

DEPTH_MAX = 64
REPEATS_MAX = 2000
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_NAME = frozenset(string.ascii_letters + string.digits + "-_")
_ANY = r"/[\x{0}-\x{10FFFF}]/"
_NONE = '""'


def to_lark(text: str) -> str:
    """The same language in llguidance's notation. ValueError says what is wrong, and in which line."""
    parser = _Parser(text)
    parser.rules()
    if "root" not in parser.bodies:
        raise ValueError("there is no rule 'root'")
    for name, line in parser.used.items():
        if name not in parser.bodies:
            raise ValueError(f"line {line}: there is no rule {name!r}")
    rules = [f"{parser.label(name)}: {body}" for name, body in parser.bodies.items()]
    return "\n".join([f"start: {parser.label('root')}", *rules])


class _Parser:
    """Recursive descent over the text. `bodies`: rules by name; `used`: names referred to, with the first such line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._labels: dict[str, str] = {}
        self.bodies: dict[str, str] = {}
        self.used: dict[str, int] = {}

    def label(self, name: str) -> str:
        """The rule's name in the result, where names must be in small letters and without hyphens."""
        return self._labels.setdefault(name, f"r{len(self._labels)}")

    def rules(self) -> None:
        self._blanks(newlines=True)
        while self._next:
            name = self._name()
            self._blanks()
            self._expect("::=")
            self._blanks(newlines=True)
            self.bodies[name] = self._alternatives(nested=False)
            if self._next not in ("\r", "\n", ""):
                raise self._wrong("a new line")
            self._blanks(newlines=True)

    def _alternatives(self, nested: bool) -> str:
        parts = [self._sequence(nested)]
        while self._skip("|"):
            self._blanks(newlines=True)
            parts.append(self._sequence(nested))
        return " | ".join(parts)

    def _sequence(self, nested: bool) -> str:
        items = []
        while (item := self._item(nested)) is not None:
            self._blanks(newlines=nested)
            items.append(self._repeated(item))
            self._blanks(newlines=nested)
        return " ".join(items) or _NONE

    def _item(self, nested: bool) -> str | None:
        """One item, in parentheses where it has parts; None where the sequence ends."""
        match self._next:
            case '"':
                return self._literal()
            case "[":
                return self._characters()
            case "(":
                return self._group()
            case ".":
                self._at += 1
                return _ANY
            case "<" | "!":
                return self._token()
            case char if char in _NAME:
                line, name = self._line, self._name()
                self.used.setdefault(name, line)
                return self.label(name)
        return None

    def _group(self) -> str:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"line {self._line}: groups are nested deeper than {DEPTH_MAX}")
        self._expect("(")
        self._blanks(newlines=True)
        inner = self._alternatives(nested=True)
        self._expect(")")
        self._depth -= 1
        return f"({inner})"

    def _literal(self) -> str:
        self._expect('"')
        chars = []
        while not self._skip('"'):
            chars.append(f"/{_code(self._char())}/")
        return f"({' '.join(chars)})" if chars else _NONE

    def _characters(self) -> str:
        self._expect("[")
        parts = ["^"] if self._skip("^") else []
        while not self._skip("]"):
            first = last = self._char()
            if self._next == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._char()
            if last < first:
                raise ValueError(f"line {self._line}: the range ends before it begins")
            parts.append(_code(first) if first == last else f"{_code(first)}-{_code(last)}")
        if parts in ([], ["^"]):
            raise ValueError(f"line {self._line}: there is no character in []")
        return f"/[{''.join(parts)}]/"

    def _token(self) -> str:
        """`<[123]>`: a token of the vocabulary by its id."""
        if not self._skip("<["):
            raise ValueError(f"line {self._line}: tokens are taken by their ids only, as in <[123]>")
        number = self._number()
        self._expect("]>")
        return f"<[{number}]>"

    def _repeated(self, item: str) -> str:
        for sign in "*+?":
            if self._skip(sign):
                return f"{item}{sign}"
        if not self._skip("{"):
            return item
        self._blanks(newlines=True)
        low = self._number()
        high: int | None = low
        self._blanks(newlines=True)
        if self._skip(","):
            self._blanks(newlines=True)
            high = self._number() if self._next.isdecimal() else None
            self._blanks(newlines=True)
        self._expect("}")
        if max(low, high or 0) > REPEATS_MAX or (high is not None and high < low):
            raise ValueError(f"line {self._line}: repeats must be in order, and {REPEATS_MAX} at most")
        return f"{item}{{{low},{'' if high is None else high}}}"

    def _char(self) -> str:
        char = self._take(1)
        if char != "\\":
            return char
        kind = self._take(1)
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        if kind not in _HEX_ESCAPES:
            raise ValueError(f"line {self._line}: there is no escape \\{kind}")
        digits = self._take(_HEX_ESCAPES[kind])
        if not all(digit in string.hexdigits for digit in digits):
            raise ValueError(f"line {self._line}: \\{kind}{digits} is no hexadecimal number")
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise ValueError(f"line {self._line}: \\{kind}{digits} is no character")
        return chr(code)

    def _name(self) -> str:
        start = self._at
        while self._next in _NAME:
            self._at += 1
        if start == self._at:
            raise self._wrong("the name of a rule")
        return self._text[start : self._at]

    def _number(self) -> int:
        start = self._at
        while self._next in string.digits and self._next:
            self._at += 1
        if not 0 < self._at - start < 10:
            raise self._wrong("a number")
        return int(self._text[start : self._at])

    def _blanks(self, newlines: bool = False) -> None:
        while self._next:
            if self._next == "#":
                while self._next not in ("\r", "\n", ""):
                    self._at += 1
            elif self._next in " \t" or (newlines and self._next in "\r\n"):
                self._at += 1
            else:
                return

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    @property
    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _take(self, count: int) -> str:
        taken = self._text[self._at : self._at + count]
        if len(taken) < count:
            raise self._wrong("more text")
        self._at += count
        return taken

    def _skip(self, word: str) -> bool:
        """Move over `word` if it comes next."""
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            raise self._wrong(repr(word))

    def _wrong(self, expected: str) -> ValueError:
        found = repr(self._next) if self._next else "the end"
        return ValueError(f"line {self._line}: expected {expected}, found {found}")


def _code(char: str) -> str:
    """A character that means itself in any regular expression."""
    return f"\\x{{{ord(char):X}}}"
