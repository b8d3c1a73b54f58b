"""Rules for answers that may call tools or think, made of the family's notation (`llamad.api.notation`).

Where the model decides, its text is free until a call begins; from there on the call is written as the family writes it,
with the name of a tool that may be called and arguments that conform to its schema. Where a call is required, the answer
is a thought, if the model thinks, and calls.

The grammar is in llguidance's notation. Two things of it make free text possible: a control token ends a lexeme of text,
as text matches none; and a `lazy` lexeme ends as soon as it can, before the one for all the rest of the text goes on. A
token of free text costs 2 us.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from llamad.api.literal_rules import LiteralRules
from llamad.api.notation import Calls, Spelling, Thought
from llamad.api.pair_rules import PairRules, escaped
from llamad.api.schema import schema_text
from llamad.api.tools import Tool
from llamad.engine.vocabulary import Rules

_PLACES = re.compile("«(arguments|pairs|id|n)»")


@dataclass(frozen=True, slots=True)
class Demands:
    """What the rules of one answer are made for.

    `tools`: those that may be called. `thinking`: `begun` (by the prompt), `free` (the model may begin with a thought) or
    `off`. `thoughtless`: a thought that begins ends at once. `answer`: what one that calls nothing must conform to, None for
    free text.
    """

    tools: tuple[Tool, ...] = ()
    required: bool = False
    parallel: bool = True
    thinking: str = "off"
    thoughtless: bool = False
    answer: Rules | None = None


def chat_rules(spelling: Spelling, demands: Demands) -> Rules | None:
    """None where anything goes. Raises RequestError for a schema that this notation cannot be held to."""
    if not demands.tools and demands.answer is None and not demands.thoughtless:
        return None
    return _Grammar(spelling, demands).rules()


class _Grammar:
    """The rules of one answer while they are made: named rules, lexemes, and parts that they refer to."""

    def __init__(self, spelling: Spelling, demands: Demands) -> None:
        self._spelling = spelling
        self._notation = spelling.notation
        self._demands = demands
        self._named: dict[str, str] = {}
        self._parts: dict[str, Rules] = {}
        self._pairs = PairRules(self._terms, self._up_to, self._named, self._parts)
        calls = self._notation.calls
        literals = calls.literals if calls is not None else None
        self._literals = None
        if literals is not None:
            self._literals = LiteralRules(literals, self._terms, self._named, self._parts, self._pairs)

    def rules(self) -> Rules:
        """All of it."""
        start = f"{self._thought()} {self._answer()} {self._calls_in_thought()}"
        lines = [f"start: {start}", *(f"{name}: {rule}" for name, rule in self._named.items())]
        lines += [r"TEXT: /(.|\n)*/", r"FREE: " + self._free(), r"GAP: /[ \n]{1,4}/"]
        return Rules("lark", "\n".join(lines) + "\n", tuple(self._parts.items()))

    # ---- what comes after a thought

    def _answer(self) -> str:
        demands, calls = self._demands, self._notation.calls
        if calls is None or not demands.tools:
            return self._conforming() if demands.answer else self._between_marks([])
        # Where a call may begin a message without a mark, nothing comes before it.
        gap = "" if calls.bare or self._thought() else "GAP? "
        if demands.required:
            return f"{gap}({self._calls(calls)})"
        if demands.answer:
            return f"({gap}({self._calls(calls)}) | {self._conforming()})"
        if self._is_control(calls.trigger):
            return self._between_marks([self._calls(calls)])
        return self._after_triggers(calls)

    def _conforming(self) -> str:
        """An answer by its schema."""
        opens, closes = map(self._terms, self._notation.answer)
        assert self._demands.answer is not None
        self._parts["answer"] = self._demands.answer
        return f"{opens} @answer {closes}"

    def _between_marks(self, calls: list[str]) -> str:
        """Text that ends at control tokens: at those of thoughts and frames, and at those that begin calls."""
        notation = self._notation
        marks = [*notation.frames]
        if notation.thought is not None and notation.frames:
            marks += [notation.thought.opens, notation.thought.closes]
        items = " | ".join(["FREE", *(self._terms(mark) for mark in marks if self._is_control(mark))])
        if not calls:
            return f"({items})*"
        items, again = (f"{items} | {calls[0]}", "") if self._demands.parallel else (items, f"({calls[0]})?")
        head = " | ".join(self._begun_calls())
        return f"({head})? ({items})* {again}" if head else f"({items})* {again}"

    def _after_triggers(self, calls: Calls) -> str:
        """Text, and what follows where it comes upon a trigger that is nothing but text itself."""
        options = []
        for index, (trigger, form) in enumerate(_forms(calls)):
            head = self._up_to(f"head{index}", "FREE", trigger)
            options.append(f"{head} {self._section(f'tail{index}', form[len(trigger) :], calls)}")
        again = "*" if self._demands.parallel else "?"
        first = self._begun_calls()
        if calls.bare:
            first.append(self._section("bare", calls.call, calls))
        head = f"({' | '.join(first)})? " if first else ""
        return f"{head}({' | '.join(options)}){again} FREE"

    def _free(self) -> str:
        """Text that does not begin as a thought, or a call, would."""
        calls, thought = self._notation.calls, self._notation.thought
        heads = []
        if calls is not None and self._demands.tools:
            heads += [calls.bare] if calls.bare else []
            heads += [rest.split("«")[0] for _, rest in self._begun_forms()]
        patterns = [_pattern(head) for head in heads]
        if thought is not None and self._demands.thinking == "free" and not self._is_control(thought.opens):
            patterns.append(r"[ \n\t]*" + _pattern(thought.opens))
        return "TEXT" + "".join(f" & ~/{pattern}(.|\\n)*/" for pattern in patterns)

    # ---- calls

    def _calls(self, calls: Calls) -> str:
        """One call or more, with all their marks."""
        options = [
            self._section(f"calls{index}", form, calls) for index, (_, form) in enumerate(_forms(calls))
        ]
        if calls.bare:
            options.append(self._section("bare", calls.call, calls))
        if self._demands.required:
            options += self._begun_calls()
        return " | ".join(options)

    def _begun_calls(self) -> list[str]:
        """Calls of which the first mark has been written, by the prompt or after a thought."""
        calls = self._notation.calls
        if calls is None or not self._demands.tools:
            return []
        return [self._section(f"begun{index}", rest, calls) for index, rest in self._begun_forms()]

    def _begun_forms(self) -> list[tuple[int, str]]:
        calls, thought = self._notation.calls, self._notation.thought
        if calls is None or thought is None or not thought.resumes:
            return []
        return [
            (index, form[len(thought.resumes) :])
            for index, (_, form) in enumerate(_forms(calls))
            if form.startswith(thought.resumes)
        ]

    def _section(self, name: str, form: str, calls: Calls) -> str:
        """A call that begins as `form` says, others after it if there may be more, and what closes them."""
        self._named[name] = self._any_tool(form, calls)
        if not self._demands.parallel:
            return f"{name} {self._terms(calls.closes)}"
        self._named.setdefault("more", self._any_tool(calls.apart + calls.call, calls))
        return f"{name} more* {self._terms(calls.closes)}"

    def _any_tool(self, form: str, calls: Calls) -> str:
        return " | ".join(
            self._one_tool(form, calls, index, tool) for index, tool in enumerate(self._demands.tools)
        )

    def _one_tool(self, form: str, calls: Calls, index: int, tool: Tool) -> str:
        name = _quoted(tool.name)[1:-1] if '"«name»' in form else tool.name
        terms = []
        for place, piece in enumerate(_PLACES.split(form.replace("«name»", name))):
            if place % 2 == 0:
                terms.append(self._terms(piece))
            elif piece == "arguments":
                terms.append(self._arguments(index, tool))
            elif piece == "pairs":
                terms.append(self._pairs.all_of(index, tool, calls))
            else:
                terms.append("/[0-9]{1,4}/" if piece == "n" else f"/[a-zA-Z0-9]{{{calls.id_chars}}}/")
        return " ".join(filter(None, terms))

    def _arguments(self, index: int, tool: Tool) -> str:
        if self._literals is not None:
            return self._literals.all_of(index, tool)
        name = f"tool{index}"
        if name not in self._parts:
            self._parts[name] = Rules("json_schema", schema_text(tool.schema, notes=False))
        return f"@{name}"

    # ---- thoughts

    def _thought(self) -> str:
        thought, thinking = self._notation.thought, self._demands.thinking
        if thought is None or thinking == "off":
            return ""
        # Text may begin with blanks of its own; what is not text may not.
        free = not self._demands.required and self._demands.answer is None
        gap = "" if free and not (self._notation.calls is not None and self._notation.calls.bare) else "GAP?"
        rest = f"{self._rest_of(thought)} {self._terms(thought.resumes)} {gap}"
        if thinking == "begun":
            return rest
        if self._is_control(thought.opens):
            return f"(GAP? {self._terms(thought.opens)} {rest})?"
        # One lexeme with the blanks before it, as text may begin with blanks, too.
        self._named["OPEN"] = f"/[ \\n\\t]*{_pattern(thought.opens)}/"
        return f"(OPEN {rest})?"

    def _rest_of(self, thought: Thought) -> str:
        closes = self._terms(thought.closes)
        if self._demands.thoughtless:
            return f"GAP? {closes}"
        return self._up_to("mind", "TEXT", thought.closes)

    def _calls_in_thought(self) -> str:
        """Another way for all of an answer to be: a thought that calls end."""
        calls, thought, demands = self._notation.calls, self._notation.thought, self._demands
        if calls is None or thought is None or not (calls.ends_thought and demands.tools):
            return ""
        if demands.thinking == "off" or demands.thoughtless:
            return ""
        opens = self._terms(thought.opens) if self._is_control(thought.opens) else "OPEN"
        begun = "" if demands.thinking == "begun" else f"GAP? {opens}" if opens != "OPEN" else opens
        (trigger, form) = _forms(calls)[0]
        call = self._section("thoughtful", form[len(trigger) :], calls)
        return f"| {begun} {self._up_to('doubt', 'TEXT', trigger)} {call} GAP?"

    # ---- marks

    def _up_to(self, name: str, lexeme: str, mark: str) -> str:
        """Text, and the mark that ends it. Only a mark that is nothing but text itself needs a lazy lexeme."""
        first, *others = self._spelling.pieces(mark)
        if isinstance(first, int):
            return f"{lexeme} {self._terms(mark)}"
        if not any(isinstance(piece, int) for piece in others):
            self._named[f"{name}[lazy]"] = f"{lexeme} {_quoted(mark)}"
            return name
        self._named[name.upper()] = f"{lexeme} {_quoted(first)}"
        return f"{name.upper()} {self._terms(mark[len(first) :])}"

    def _is_control(self, mark: str) -> bool:
        """Does this mark begin with a control token?"""
        pieces = self._spelling.pieces(mark)
        return bool(pieces) and isinstance(pieces[0], int)

    def _terms(self, text: str) -> str:
        return " ".join(
            f"<[{piece}]>" if isinstance(piece, int) else _quoted(piece)
            for piece in self._spelling.pieces(text)
        )


def _forms(calls: Calls) -> list[tuple[str, str]]:
    """(trigger, canonical text) of each way to begin calls, the first one with what opens them."""
    (trigger, call), *others = calls.forms()
    return [(trigger, calls.opens + call), *others]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _pattern(head: str) -> str:
    """A regular expression for this head; JSON may have blanks between its words."""
    words = re.findall(r"\w+|[^\w\s]", head) if head.startswith("{") else [head]
    return r"[ \n\t]*".join(map(escaped, words))
