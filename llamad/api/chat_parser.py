"""The reader of a model's answers: text in, deltas out (`llamad.api.deltas`), for every family by its row of data.

It is written as if all text were there: a generator that walks over the message and pauses wherever it needs to see more.
So one and the same walk reads streams and whole answers, however the text is cut, and nothing that was given out is
taken back: what could still become a mark is held, and what follows a mark is held until it is certain to be a call,
which it is with the name of a tool and the beginning of its arguments. What turns out to be no call is content, its mark
included.

Blanks around marks belong to the notation and not to what is said. Calls are looked for only where tools may be called;
their ids are made here.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Sequence

from llamad.api.arguments import JsonEnd, as_json, may_be_text, property_schema, quoted
from llamad.api.cursor import Cursor, Walk
from llamad.api.deltas import CallArguments, CallBegun, Content, Delta, Reasoning
from llamad.api.literals import LiteralReader
from llamad.api.marks import Marks
from llamad.api.notation import Calls, Notation, Part, Place, Thought, parts
from llamad.api.tools import Tool

_IDS = string.ascii_letters + string.digits


class PlainParser:
    """For answers that are nothing but text."""

    def push(self, text: str, /) -> list[Delta]:
        """All of it, at once."""
        return [Content(text)] if text else []

    def finish(self) -> list[Delta]:
        """Nothing is held back."""
        return []


class ChatParser(Cursor):
    """Reads one message. See `deltas.Parser`."""

    def __init__(
        self,
        notation: Notation,
        tools: Sequence[Tool] = (),
        *,
        begun: str = "",
        apart: bool = True,
        inline: bool = False,
        make_id: Callable[[int], str] | None = None,
    ) -> None:
        """`tools`: those that may be called. `begun`: the end of the prompt, where it is a mark that the model goes on from.

        Thoughts are told `apart` from content, or `inline` as a part of it, with their marks, or both.
        """
        super().__init__(begun)
        self._thought = notation.thought
        self._calls = notation.calls if tools else None
        self._framed = bool(notation.frames)
        self._tools = {tool.name: tool for tool in tools}
        self._apart = apart
        self._inline = inline
        self._make_id = make_id or _random_id
        self._forms = dict(self._calls.forms()) if self._calls else {}
        opens = [notation.thought.opens] if notation.thought and self._framed else []
        self._marks = Marks([*notation.frames, *self._forms, *opens])
        self._n_calls = 0
        self._mute_blanks = False
        self._out: list[Delta] = []
        self._walk = self._message()

    def push(self, text: str, /) -> list[Delta]:
        """More text; what is certain now."""
        self._text += text
        return self._go_on()

    def finish(self) -> list[Delta]:
        """The message has ended; what was held back."""
        self._ended = True
        return self._go_on()

    def _go_on(self) -> list[Delta]:
        if self._text or self._ended:
            next(self._walk, None)
        out, self._out = self._out, []
        return out

    # ---- the walk

    def _message(self) -> Walk[None]:
        thought, calls = self._thought, self._calls
        if thought is not None and not self._framed and (yield from self._begins(thought.opens)):
            yield from self._think(thought)
        # Blanks may come before a call without a mark only after a thought.
        if (
            calls is not None
            and calls.bare
            and (yield from self._begins(calls.bare, after_blanks=self._mute_blanks))
        ):
            yield from self._try_calls(calls.call, calls)
        while (mark := (yield from self._say())) is not None:
            if calls is not None and mark in self._forms:
                if not (yield from self._try_calls(self._canonical(mark, calls), calls)):
                    self._content(self._lead() + len(mark))
            elif thought is not None and mark == thought.opens:
                yield from self._think(thought)
            else:
                self._settle(self._lead() + len(mark))
                self._mute_blanks = True

    def _canonical(self, mark: str, calls: Calls) -> str:
        return calls.opens + calls.call if mark == calls.trigger else self._forms[mark]

    def _begins(self, mark: str, *, after_blanks: bool = True) -> Walk[bool]:
        """Is `mark` the next that comes?"""
        while True:
            start = self._lead() if after_blanks else 0
            here = self._text[start : start + len(mark)]
            if here == mark:
                return True
            if self._ended or not mark.startswith(here):
                return False
            yield

    def _say(self) -> Walk[str | None]:
        """Content up to a mark, which is left where it stands with the blanks before it; None: the message has ended."""
        while True:
            size, mark = self._marks.find(self._text, self._ended)
            if mark is not None or (self._marks and not self._ended):
                size = len(self._text[:size].rstrip())
            self._content(size)
            if mark is not None or self._ended:
                return mark
            yield

    def _think(self, thought: Thought) -> Walk[None]:
        """From the mark that opens a thought to the one that closes it, or to a call, where calls end thoughts.

        Blanks at both ends of it are not told.
        """
        self._inlined(self._lead() + len(thought.opens))
        calls, begun = self._calls, False
        ends = Marks([thought.closes, *([calls.trigger] if calls is not None and calls.ends_thought else [])])
        while True:
            size, mark = ends.find(self._text, self._ended)
            if not begun and (lead := min(self._lead(), size)):
                self._inlined(lead)
                size -= lead
            told = self._text[:size] if self._ended and mark is None else self._text[:size].rstrip()
            begun = self._thought_of(told) or begun
            size -= len(told)
            if mark == thought.closes:
                self._inlined(size + len(mark))
                self._mute_blanks = not self._inline
            elif (
                mark is not None
                and calls is not None
                and not (yield from self._try_calls(self._canonical(mark, calls), calls))
            ):
                begun = self._thought_of(self._text[: size + len(mark)])
                continue
            if mark is not None or self._ended:
                return
            yield

    def _thought_of(self, told: str) -> bool:
        """So much text is thought; whether it is any."""
        if told and self._apart:
            self._out.append(Reasoning(told))
        self._inlined(len(told))
        return bool(told)

    def _try_calls(self, canonical: str, calls: Calls) -> Walk[bool]:
        """Calls, from the mark on; False, and nothing is dealt with, if there is none."""
        self._at = self._lead()
        before = self._n_calls
        if (yield from self._call(canonical, calls)):
            while (yield from self._call(calls.apart + calls.call, calls)):
                pass
            if (yield from self._literal(calls.closes)):
                self._settle(self._at)
        self._at = 0
        called = self._n_calls > before
        self._mute_blanks = called or self._mute_blanks
        return called

    def _call(self, canonical: str, calls: Calls) -> Walk[bool]:
        """One call from the cursor on, all of it settled; False, and the cursor where it was, if there is none."""
        start, tool, told = self._at, None, False
        for part in parts(canonical):
            if isinstance(part, str):
                fits = yield from self._literal(part)
            elif part.what == "name":
                tool = yield from self._name()
                fits = tool is not None
            elif tool is not None and part.what in ("arguments", "pairs"):
                fits = told = yield from self._arguments(part, tool, calls)
            else:
                fits = yield from self._word(part.what)
            if not fits and not told:
                self._at = start
                return False
            if told:
                # What is missing of the notation because the answer was cut off is nothing to tell.
                self._settle(len(self._text) if self._cut else self._at)
            if not fits:
                break
        return told

    def _name(self) -> Walk[Tool | None]:
        """The tool whose name stands at the cursor, or behind blanks there."""
        yield from self._skip_blanks()
        longest = max(map(len, self._tools)) + 1
        while len(self._text) - self._at < longest and not self._ended:
            here = self._text[self._at :]
            if not any(name.startswith(here[: len(name)]) for name in self._tools):
                return None
            if any(
                len(here) > len(name) and here.startswith(name) and not _goes_on(here[len(name)])
                for name in self._tools
            ):
                break
            yield
        here = self._text[self._at : self._at + longest]
        fitting = [
            name for name in self._tools if here.startswith(name) and not _goes_on(here[len(name) :][:1])
        ]
        if not fitting:
            return None
        name = max(fitting, key=len)
        self._at += len(name)
        return self._tools[name]

    def _arguments(self, part: Place, tool: Tool, calls: Calls) -> Walk[bool]:
        yield from self._skip_blanks()
        opens = calls.literals.opens if calls.literals is not None else "{"
        if part.what == "arguments" and (yield from self._peek()) != opens:
            return False
        index = self._n_calls
        self._n_calls += 1
        self._out.append(CallBegun(index, self._make_id(calls.id_chars), tool.name))
        self._settle(self._at)
        if part.what == "pairs":
            yield from self._pairs(index, tool, calls)
        elif calls.literals is not None:
            yield from self._literals(index, LiteralReader(calls.literals))
        else:
            yield from self._object(index)
        return True

    def _object(self, index: int) -> Walk[None]:
        """A JSON object, handed on as it comes."""
        scan = JsonEnd()
        while True:
            size = scan.feed(self._text)
            if size:
                self._out.append(CallArguments(index, self._text[:size]))
                self._settle(size)
            if scan.ended or self._ended:
                return
            yield

    def _literals(self, index: int, reader: LiteralReader) -> Walk[None]:
        """Arguments in the family's own notation, handed on as JSON."""
        while True:
            size, json = reader.feed(self._text, self._ended)
            if json:
                self._out.append(CallArguments(index, json))
            self._settle(size)
            if reader.ended or self._ended:
                return
            yield

    def _pairs(self, index: int, tool: Tool, calls: Calls) -> Walk[None]:
        """Keys and values in marks of their own, handed on as a JSON object."""
        opens, *between, _, closes = calls.pair_parts
        lead = "{"
        while (yield from self._literal(str(opens))):
            key, kind = yield from self._key(between)
            self._out.append(CallArguments(index, lead + quoted(key) + ": "))
            lead = ", "
            self._settle(self._at)
            text = (
                kind == calls.kinds[0]
                if kind
                else may_be_text(property_schema(tool.schema, key), tool.schema)
            )
            yield from self._value(index, bool(text), str(closes), calls.wraps)
        self._out.append(CallArguments(index, "{}" if lead == "{" else "}"))

    def _key(self, between: Sequence[Part]) -> Walk[tuple[str, str]]:
        """The name of a pair, and of which kind its value is if that is said, up to where the value begins."""
        found = {"key": "", "kind": ""}
        what = ""
        for part in between:
            if isinstance(part, Place):
                what = part.what
                continue
            found[what] = (yield from self._until(part.split()[0])).strip()
            yield from self._literal(part.rstrip())
            yield from self._newline(part)
        return found["key"], found["kind"]

    def _value(self, index: int, text: bool, closes: str, wraps: tuple[str, str]) -> Walk[None]:
        """A value up to its mark: a text as it comes, anything else when it is whole."""
        if text and wraps[0] and (yield from self._begins(wraps[0])):
            self._settle(self._lead() + len(wraps[0]))
            closes = wraps[1] + closes
        ends = Marks([closes.rstrip()])
        if text:
            self._out.append(CallArguments(index, '"'))
        while True:
            size, found = ends.find(self._text, self._ended)
            whole = found is not None or self._ended
            if text and size:
                self._out.append(CallArguments(index, quoted(self._text[:size])[1:-1]))
            elif whole and not text:
                self._out.append(CallArguments(index, as_json(self._text[:size])))
            if text or whole:
                self._settle(size)
            if whole:
                break
            yield
        if text:
            self._out.append(CallArguments(index, '"'))
        yield from self._literal(closes)
        self._settle(self._at)

    # ---- what is done with text

    def _content(self, size: int) -> None:
        """So much text is content, but for blanks that follow a mark."""
        text = self._text[:size].lstrip() if self._mute_blanks else self._text[:size]
        if text:
            self._mute_blanks = False
            self._out.append(Content(text))
        self._settle(size)

    def _inlined(self, size: int) -> None:
        """So much text belongs to a thought and its marks, which may be content, too."""
        if self._inline and size:
            self._out.append(Content(self._text[:size]))
        self._settle(size)


def _goes_on(char: str) -> bool:
    return char.isalnum() or char in ("_", "-") if char else False


def _random_id(size: int) -> str:
    return "".join(secrets.choice(_IDS) for _ in range(size))
