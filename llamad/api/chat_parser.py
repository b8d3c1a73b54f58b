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
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from llamad.api.arguments import JsonEnd, as_json, may_be_text, property_schema, quoted
from llamad.api.deltas import CallArguments, CallBegun, Content, Delta, Reasoning
from llamad.api.marks import Marks
from llamad.api.notation import Calls, Notation, Part, Place, Thought, parts
from llamad.api.tools import Tool

T = TypeVar("T")
Walk = Generator[None, None, T]
"""Yields where more text is needed."""

_IDS = string.ascii_letters + string.digits
# Blanks are free beside these, and wherever the canonical text has some.
_JOINTS = frozenset("{}[],:")


class PlainParser:
    """For answers that are nothing but text."""

    def push(self, text: str, /) -> list[Delta]:
        """All of it, at once."""
        return [Content(text)] if text else []

    def finish(self) -> list[Delta]:
        """Nothing is held back."""
        return []


class ChatParser:
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
        self._text = begun
        """What is not settled yet; before `_at` it has been looked at."""
        self._at = 0
        self._ended = False
        self._cut = False
        """Has the last literal been missing only because the message ended?"""
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
            yield from self._try_calls(calls.call, "", calls)
        while (mark := (yield from self._say())) is not None:
            if calls is not None and mark in self._forms:
                yield from self._try_calls(self._canonical(mark, calls), mark, calls)
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
        """From the mark that opens a thought to the one that closes it. Blanks at both ends of it are not told."""
        self._inlined(self._lead() + len(thought.opens))
        closes, begun = Marks([thought.closes]), False
        while True:
            size, mark = closes.find(self._text, self._ended)
            if not begun and (lead := min(self._lead(), size)):
                self._inlined(lead)
                size -= lead
            told = self._text[:size] if self._ended and mark is None else self._text[:size].rstrip()
            if told:
                begun = True
                if self._apart:
                    self._out.append(Reasoning(told))
                self._inlined(len(told))
                size -= len(told)
            if mark is not None:
                self._inlined(size + len(mark))
                self._mute_blanks = not self._inline
            if mark is not None or self._ended:
                return
            yield

    def _try_calls(self, canonical: str, mark: str, calls: Calls) -> Walk[None]:
        """Calls, from the mark on; if there is none, the mark is content."""
        self._at = self._lead()
        before = self._n_calls
        if (yield from self._call(canonical, calls)):
            while (yield from self._call(calls.apart + calls.call, calls)):
                pass
            if (yield from self._literal(calls.closes)):
                self._settle(self._at)
        if self._n_calls > before:
            self._mute_blanks = True
        else:
            self._content(self._lead() + len(mark))
        self._at = 0

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
        """The tool whose name stands at the cursor."""
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
        if part.what == "arguments" and (yield from self._peek()) != "{":
            return False
        index = self._n_calls
        self._n_calls += 1
        self._out.append(CallBegun(index, self._make_id(calls.id_chars), tool.name))
        self._settle(self._at)
        if part.what == "arguments":
            yield from self._object(index)
        else:
            yield from self._pairs(index, tool, calls.pair_parts)
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

    def _pairs(self, index: int, tool: Tool, pair: Sequence[Part]) -> Walk[None]:
        """Keys and values in marks of their own, handed on as a JSON object."""
        opens, _, between, _, closes = map(str, pair)
        lead = "{"
        while (yield from self._literal(opens)):
            key_end, _, value_lead = between.partition(between.split()[0])
            key_end = between.split()[0]
            key = yield from self._until(key_end)
            yield from self._literal(key_end + value_lead.rstrip())
            yield from self._newline(value_lead)
            self._out.append(CallArguments(index, lead + quoted(key.strip()) + ": "))
            lead = ", "
            self._settle(self._at)
            kind = may_be_text(property_schema(tool.schema, key.strip()), tool.schema)
            yield from self._value(index, bool(kind), closes)
        self._out.append(CallArguments(index, "{}" if lead == "{" else "}"))

    def _value(self, index: int, text: bool, closes: str) -> Walk[None]:
        """A value up to its mark: a text as it comes, anything else when it is whole."""
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

    # ---- steps of the cursor

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

    # ---- what is done with text

    def _lead(self) -> int:
        """How many blanks there are at the start."""
        return len(self._text) - len(self._text.lstrip())

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

    def _settle(self, size: int) -> None:
        """So much text has been dealt with."""
        self._text = self._text[size:]
        self._at = 0


def _goes_on(char: str) -> bool:
    return char.isalnum() or char in ("_", "-") if char else False


def _random_id(size: int) -> str:
    return "".join(secrets.choice(_IDS) for _ in range(size))
