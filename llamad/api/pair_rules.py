"""Rules for arguments that are written one by one, each value between marks of its own: strings without quotes.

Properties come in the order of the schema. What a string must be, beyond that it is one, is honoured as far as it can be
said of text without quotes: `enum`, `const`, lengths and `pattern`. A format, there, is a note to people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from llamad.api.arguments import may_be_text
from llamad.api.schema import schema_text
from llamad.api.tools import Tool
from llamad.engine.vocabulary import Rules

_DEFINITIONS = ("$defs", "definitions")


class PairRules:
    """Adds rules and their parts to those of a grammar. `terms` writes a literal."""

    def __init__(self, terms: Callable[[str], str], named: dict[str, str], parts: dict[str, Rules]) -> None:
        self._terms = terms
        self._named = named
        self._parts = parts

    def all_of(self, index: int, tool: Tool, pair: str) -> str:
        """The name of the rule for all arguments of a tool."""
        name = f"pairs{index}"
        if name not in self._named:
            self._named[name] = ""
            self._named[name] = self._pairs(name, tool.schema, pair) or '""'
        return name

    def _pairs(self, name: str, schema: Mapping[str, Any], pair: str) -> str:
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(properties, dict) or (not properties and "additionalProperties" in schema):
            return f"({self._any_pair(name, pair)})*"
        terms = []
        for place, (key, value) in enumerate(properties.items()):
            needed = isinstance(required, list) and key in required
            rule = f"{name}_{place}"
            self._named[rule] = self._one(rule, key, value, schema, pair)
            terms.append(rule if needed else f"{rule}?")
        return " ".join(terms)

    def _one(self, rule: str, key: str, value: Any, root: Mapping[str, Any], pair: str) -> str:
        opens, _, closes = pair.replace("«key»", key).partition("«value»")
        if may_be_text(value, root) is False:
            self._parts[rule] = Rules("json_schema", schema_text(_alone(value, root), notes=False))
            return f"{self._terms(opens)} @{rule} {self._terms(closes)}"
        if isinstance(value, dict) and (choices := _choices(value)):
            options = " | ".join(self._terms(choice) for choice in choices)
            return f"{self._terms(opens)} ({options}) {self._terms(closes)}"
        return f"{self._terms(opens)} {self._text(rule, _wanted(value), closes)}"

    def _any_pair(self, name: str, pair: str) -> str:
        opens, _, rest = pair.partition("«key»")
        between, _, closes = rest.partition("«value»")
        key = self._text(f"{name}_key", r"/[^<>\n]+/", between)
        return f"{self._terms(opens)} {key} {self._text(f'{name}_value', 'TEXT', closes)}"

    def _text(self, rule: str, text: str, closes: str) -> str:
        """Text up to what closes it, the blanks after which are part of neither."""
        mark = closes.rstrip()
        terms = self._terms(mark)
        lexeme = "TEXT"
        if text != lexeme:
            lexeme = rule.upper()
            self._named[lexeme] = f"{text} & ~/(.|\\n)*{escaped(mark)}(.|\\n)*/"
        if "<[" in terms:
            # A newline before the control token goes with the text.
            return f"{lexeme} {self._terms(closes.lstrip())}"
        self._named[f"{rule}_text[lazy]"] = f"{lexeme} {terms}"
        blanks = self._terms(closes[len(mark) :])
        return f"{rule}_text {blanks}"


def escaped(text: str) -> str:
    """A regular expression for just this text."""
    return re.sub(r"[][.^$*+?(){}|/\\]", r"\\\g<0>", text).replace("\n", "\\n")


def _alone(value: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """A property's schema as a document of its own, with the definitions that it may refer to."""
    definitions = {word: root[word] for word in _DEFINITIONS if word in root}
    return definitions | dict(value)


def _choices(value: Mapping[str, Any]) -> list[str]:
    values = [value["const"]] if "const" in value else value.get("enum")
    if not isinstance(values, list):
        return []
    return [each if isinstance(each, str) else json.dumps(each) for each in values]


def _wanted(value: Any) -> str:
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
