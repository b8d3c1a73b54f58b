"""How a family of models writes what is not plain text: its thoughts and its calls. The table is in `families`.

A call is described by its canonical text, as the family's own templates write it into a prompt, with places for what
varies:

    «name»        the tool's name
    «arguments»   its arguments, a JSON object
    «pairs»       or its arguments one by one, each written as `pair` says, with «key» and «value»; a value that may be a
                  string stands there as it is, any other is JSON. «kind», there, says which of them: one of `kinds`
    «id» «n»      an id of `id_chars` letters and digits; a number. They are written and then forgotten: ids that clients see
                  are our own, because some of these repeat

From this one text follow the parser (`chat_parser`), which reads it with any blanks between its parts, and the rules
that make a model write it (`chat_rules`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from llamad.api.literals import Literals

_PLACE = re.compile("«([a-z]+)»")


@dataclass(frozen=True, slots=True)
class Place:
    """Where something that varies stands: `name`, `arguments`, `pairs`, `key`, `kind`, `value`, `id` or `n`."""

    what: str


Part = str | Place


@dataclass(frozen=True, slots=True)
class Thought:
    """Marks around what a model thinks. `lead`: what templates put between the first one and the thought; `resumes`: what a
    model writes between a thought and anything else. `unasked`: whether it thinks unless it is asked not to. `bare`: an
    answer without a thought begins with the second mark alone.
    """

    opens: str
    closes: str
    resumes: str = ""
    lead: str = ""
    unasked: bool = True
    bare: bool = False


@dataclass(frozen=True)
class Calls:
    """How calls are written: `opens`, `call`, `apart`, `call`, …, `closes`.

    `trigger` begins all that (it is the head of `opens`, or of `call`), and no text that is meant for people contains
    it. `others`: other ways to write a call, with triggers of their own, each ending before the name. `bare`: a message
    may also begin with a call, without `opens`, if it begins with `bare`. `id_chars`: of the ids that the family's
    templates accept.
    """

    call: str
    trigger: str
    opens: str = ""
    apart: str = "\n"
    closes: str = ""
    pair: str = ""
    others: tuple[str, ...] = ()
    bare: str = ""
    id_chars: int = 32
    ends_thought: bool = False
    literals: Literals | None = None
    kinds: tuple[str, ...] = ()
    wraps: tuple[str, str] = ("", "")

    @cached_property
    def pair_parts(self) -> tuple[Part, ...]:
        return parts(self.pair)

    def forms(self) -> tuple[tuple[str, str], ...]:
        """(trigger, canonical text of a call) for all ways to begin calls."""
        return (
            (self.trigger, self.call),
            *((other[: other.index("«")], other) for other in self.others),
        )


@dataclass(frozen=True)
class Notation:
    """One family. `frames`: marks that stand around what is said, and are no part of it.

    `answer`: the frames that open and close an answer, where there are such. `known`: whether the model's own notation is
    this, and not one that it is asked to use. `reopens`: how a prompt ends that lacks the second of these, though the
    answer is a new one.
    """

    name: str
    thought: Thought | None = None
    calls: Calls | None = None
    frames: tuple[str, ...] = ()
    answer: tuple[str, str] = ("", "")
    known: bool = True
    reopens: tuple[str, str] = ("", "")

    def marks(self) -> tuple[str, ...]:
        """All marks that a parser must be shown, also where they are control tokens of the model."""
        texts = list(self.frames)
        if self.thought is not None:
            texts += [self.thought.opens, self.thought.closes, self.thought.resumes]
        if self.calls is not None:
            calls = self.calls
            texts += [calls.opens, calls.call, calls.closes, calls.pair, *calls.others]
            texts += calls.literals.quotes if calls.literals is not None else ()
        return tuple(text for text in texts if text)


@dataclass(frozen=True)
class Spelling:
    """A notation with what one model's vocabulary makes of it: `controls` are the marks, or parts of marks, that are
    control tokens, with their ids. Other marks are ordinary text there."""

    notation: Notation
    controls: Mapping[str, int] = field(default_factory=dict)

    def pieces(self, text: str) -> list[str | int]:
        """`text` cut into control tokens (their ids) and what is ordinary text."""
        if not self.controls or not text:
            return [text] if text else []
        pattern = "|".join(map(re.escape, sorted(self.controls, key=len, reverse=True)))
        cut = re.split(f"({pattern})", text)
        return [self.controls.get(piece, piece) for piece in cut if piece]


# What may be a token of its own: <|...|>, <...>, [...] of capitals.
_TOKEN = re.compile(r"<\|[^<>|]+\|>|</?[^<>\s{}\"=]+>|\[/?[A-Z_]+\]")
# These are within marks that are none: DeepSeek's, MiniCPM's.
_INNER_TOKEN = re.compile("｜[A-Z]+｜|<(?:function|param)(?= )")


def possible_tokens(notation: Notation) -> list[str]:
    """Parts of the notation's marks that may be tokens of a vocabulary."""
    return sorted(
        {
            token
            for text in notation.marks()
            for pattern in (_TOKEN, _INNER_TOKEN)
            for token in pattern.findall(text)
        }
    )


def parts(text: str) -> tuple[Part, ...]:
    """A canonical text as literals and places."""
    cut = _PLACE.split(text)
    return tuple(Place(piece) if index % 2 else piece for index, piece in enumerate(cut) if piece)
