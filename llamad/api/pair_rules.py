"""Rules for arguments that are written one by one, each value between marks of its own: strings without quotes.

Properties come in the order of the schema. What a string must be, beyond that it is one, is honoured as far as it can be
said of text without quotes: `enum`, `const`, lengths and `pattern`. A format, there, is a note to people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llamad.api.arguments import may_be_text
from llamad.api.notation import Calls
from llamad.api.schema import schema_text
from llamad.api.tools import Tool
from llamad.engine.vocabulary import Rules

_DEFINITIONS = ("$defs", "definitions")


class PairRules:
    """Adds rules and their parts to those of a grammar. `terms` writes a literal, `up_to` a text (named rule, lexeme) and
    the mark that ends it."""

    def __init__(
        self,
        terms: Callable[[str], str],
        up_to: Callable[[str, str, str], str],
        named: dict[str, str],
        parts: dict[str, Rules],
    ) -> None:
        self._terms = terms
        self._up_to = up_to
        self._named = named
        self._parts = parts

    def all_of(self, index: int, tool: Tool, calls: Calls) -> str:
        """The name of the rule for all arguments of a tool."""
        name = f"pairs{index}"
        if name not in self._named:
            self._named[name] = ""
            self._named[name] = self._pairs(name, tool.schema, calls) or '""'
        return name

    def _pairs(self, name: str, schema: Mapping[str, Any], calls: Calls) -> str:
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(properties, dict) or (not properties and "additionalProperties" in schema):
            return f"({self._any_pair(name, calls)})*"
        terms = []
        for place, (key, value) in enumerate(properties.items()):
            needed = isinstance(required, list) and key in required
            rule = f"{name}_{place}"
            self._named[rule] = self._one(rule, key, value, schema, calls)
            terms.append(rule if needed else f"{rule}?")
        return " ".join(terms)

    def _one(self, rule: str, key: str, value: Any, root: Mapping[str, Any], calls: Calls) -> str:
        opens, _, closes = calls.pair.replace("«key»", key).partition("«value»")
        text = may_be_text(value, root) is not False
        begun = self._begun(opens, calls.kinds[:1] if text else calls.kinds[1:])
        if not text:
            self._parts[rule] = Rules("json_schema", schema_text(alone(value, root), notes=False))
            return f"{begun} @{rule} {self._terms(closes)}"
        if isinstance(value, dict) and (choices := _choices(value)):
            options = " | ".join(self._terms(choice) for choice in choices)
            return f"{begun} ({options}) {self._terms(closes)}"
        plain = self.text(rule, wanted(value), closes)
        if not calls.wraps[0]:
            return f"{begun} {plain}"
        # What begins as if it were wrapped must be.
        opened, closed = calls.wraps
        self._named[f"PLAIN{rule.upper()}"] = f"{wanted(value)} & ~/{escaped(opened)}(.|\\n)*/"
        plain = self.text(rule, f"PLAIN{rule.upper()}", closes)
        wrapped = self.text(f"{rule}_wrapped", wanted(value), closed + closes)
        return f"{begun} ({plain} | {self._terms(opened)} {wrapped})"

    def _begun(self, opens: str, kinds: Sequence[str]) -> str:
        """What comes before a value of one of these kinds."""
        head, place, tail = opens.partition("«kind»")
        options = " | ".join(self._terms(kind) for kind in kinds)
        return f"{self._terms(head)} ({options}) {self._terms(tail)}" if place else self._terms(head)

    def _any_pair(self, name: str, calls: Calls) -> str:
        opens, _, rest = calls.pair.partition("«key»")
        between, _, closes = rest.partition("«value»")
        between, place, tail = between.partition("«kind»")
        key = self.text(f"{name}_key", r"/[^<>\n\"]+/", between)
        kind = f"{self._terms(calls.kinds[0])} {self._terms(tail)}" if place else ""
        return f"{self._terms(opens)} {key} {kind} {self.text(f'{name}_value', 'TEXT', closes)}"

    def text(self, rule: str, text: str, closes: str) -> str:
        """Text up to what closes it, the blanks after which are part of neither."""
        mark = closes.strip()
        if text != "TEXT":
            self._named[rule.upper()] = f"{text} & ~/(.|\\n)*{escaped(mark)}(.|\\n)*/"
            text = rule.upper()
        # A newline before a control token goes with the text.
        lead = "" if self._terms(mark).startswith("<[") else closes[: len(closes) - len(closes.lstrip())]
        tail = closes[len(closes.rstrip()) :]
        return f"{self._up_to(f'{rule}_text', text, lead + mark)} {self._terms(tail)}"


def escaped(text: str) -> str:
    """A regular expression for just this text."""
    return re.sub(r"[][.^$*+?(){}|/\\]", r"\\\g<0>", text).replace("\n", "\\n")


def alone(value: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """A property's schema as a document of its own, with the definitions that it may refer to."""
    definitions = {word: root[word] for word in _DEFINITIONS if word in root}
    return definitions | dict(value)


def _choices(value: Mapping[str, Any]) -> list[str]:
    values = [value["const"]] if "const" in value else value.get("enum")
    if not isinstance(values, list):
        return []
    return [each if isinstance(each, str) else json.dumps(each) for each in values]


def wanted(value: Any) -> str:
    """A lexeme for texts that conform."""
    if not isinstance(value, dict):
        return "TEXT"
    low, high = value.get("minLength", 0), value.get("maxLength", "")
    lexeme = "TEXT" if (low, high) == (0, "") else f"/(.|\\n){{{low},{high}}}/"
    pattern = value.get("pattern")
    if not isinstance(pattern, str):
        return lexeme
    head = "" if pattern.startswith("^") else "(.|\\n)*"
    tail = "" if pattern.endswith("$") and not pattern.endswith("\\$") else "(.|\\n)*"
    body = pattern.removeprefix("^").removesuffix("$" if not tail else "").replace("/", "\\/")
    return f"/{head}({body}){tail}/" if lexeme == "TEXT" else f"{lexeme} & /{head}({body}){tail}/"
