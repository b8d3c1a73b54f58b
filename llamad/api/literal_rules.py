"""Rules for arguments that are written like JSON, but not in JSON (`literals`).

In Python's notation (LFM2) a value is JSON, and may be in Python's words where nothing more is asked of it. In the other
one (Gemma 4) all but numbers and the like is written by rules of its own: objects have their names in the order of the
alphabet, strings are what stands between two marks. What of a schema cannot be said that way is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llamad.api.arguments import resolved
from llamad.api.literals import Literals
from llamad.api.pair_rules import PairRules, alone, wanted
from llamad.api.schema import schema_text
from llamad.api.tools import Tool
from llamad.engine.vocabulary import Rules
from llamad.errors import RequestError

DEPTH_MAX = 64
ITEMS_MAX = 4096
_HONOURED = frozenset(
    (
        *("type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
        *("enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions"),
        *("minLength", "maxLength", "pattern", "format"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *(
            "title",
            "description",
            "default",
            "examples",
            "$comment",
            "$schema",
            "$id",
            "deprecated",
            "readOnly",
        ),
        *("nullable", "writeOnly", "uniqueItems"),
    )
)
# Python's own ways to say what JSON says otherwise.
_PYTHON = {"string": r"/'([^'\\\n]|\\[^xu\n])*'/", "boolean": '"True" | "False"', "null": '"None"'}

_ASKING = ("enum", "const", "minLength", "maxLength", "pattern", "format", "not", "allOf", "anyOf", "oneOf")


class LiteralRules:
    """Adds rules and their parts to those of a grammar. `terms` writes a literal."""

    def __init__(
        self,
        literals: Literals,
        terms: Callable[[str], str],
        named: dict[str, str],
        parts: dict[str, Rules],
        pairs: PairRules,
    ) -> None:
        self._literals = literals
        self._terms = terms
        self._named = named
        self._parts = parts
        self._pairs = pairs
        self._definitions: dict[str, str] = {}

    def all_of(self, index: int, tool: Tool) -> str:
        """The name of the rule for all arguments of a tool, with what they stand between."""
        name = f"literals{index}"
        if name not in self._named:
            literals = self._literals
            self._definitions = {}
            inner = self._members(name, tool.schema, tool.schema, literals.assigns, 0)
            self._named[name] = f"{self._terms(literals.opens)} {inner} {self._terms(literals.closes)}"
        return name

    # ---- what has names

    def _members(
        self, name: str, schema: Mapping[str, Any], root: Mapping[str, Any], assigns: str, depth: int
    ) -> str:
        """Names and values, apart by commas; those that are not required may be left out."""
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(properties, dict) or (not properties and "additionalProperties" in schema):
            return self._any_members(assigns)
        rules = []
        for place, (key, value) in enumerate(self._literals.ordered(properties)):
            rule = f"{name}_{place}"
            self._named[rule] = (
                f"{self._terms(key + assigns)} ({self._value(rule + 'v', value, root, depth + 1)})"
            )
            rules.append((rule, isinstance(required, list) and key in required))
        return self._chain(name, rules)

    def _chain(self, name: str, rules: Sequence[tuple[str, bool]]) -> str:
        """The first of `rules` that is there stands alone, each other one behind a comma."""
        comma, options, needs = self._comma(), [], False
        for place, (rule, needed) in enumerate(rules):
            if not needs:
                options.append(f"{rule} {name}_after{place}")
            needs = needs or needed
            following = rules[place + 1 :][:1]
            self._named[f"{name}_after{place}"] = (
                "".join(
                    f"({comma} {each}){'' if must else '?'} {name}_after{place + 1}"
                    for each, must in following
                )
                or '""'
            )
        return f"({' | '.join(options)}){'' if needs else '?'}" if options else ""

    def _any_members(self, assigns: str) -> str:
        value = self._any_value()
        member = f"NAME {self._terms(assigns)} {value}"
        self._named["NAME"] = r"/[^\s:=,<>{}()\[\]\"']+/"
        return f"({member} ({self._comma()} {member})*)?"

    def _comma(self) -> str:
        return '"," " "?' if self._literals.python else '","'

    # ---- values

    def _value(self, rule: str, schema: Any, root: Mapping[str, Any], depth: int) -> str:
        if self._literals.python:
            return self._python_value(rule, schema, root)
        if not isinstance(schema, dict):
            return self._any_value()
        if depth > DEPTH_MAX:
            raise RequestError(
                "cannot honour the schema of a function: it is nested too deep",
                kind="unsupported-schema",
                details={"param": "tools"},
            )
        if unknown := [word for word in schema if word not in _HONOURED]:
            raise _unsupported(unknown[0])
        if isinstance(schema.get("$ref"), str):
            return self._referred(schema["$ref"], root, depth)
        if "const" in schema or isinstance(schema.get("enum"), list):
            values = [schema["const"]] if "const" in schema else schema["enum"]
            return self._choices(values)
        for word in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(word), list):
                return self._alternatives(rule, word, schema[word], root, depth)
        return self._of_kind(rule, schema, root, depth)

    def _choices(self, values: Sequence[Any]) -> str:
        if not values:
            raise _unsupported("enum")
        return " | ".join(self._terms(self._literals.value(each)) for each in values)

    def _alternatives(
        self, rule: str, word: str, schemas: Sequence[Any], root: Mapping[str, Any], depth: int
    ) -> str:
        if not schemas or (word == "allOf" and len(schemas) > 1):
            raise _unsupported(word)
        return " | ".join(
            self._value(f"{rule}o{index}", each, root, depth + 1) for index, each in enumerate(schemas)
        )

    def _of_kind(self, rule: str, schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> str:
        kind = schema.get("type", _kind_of(schema))
        if isinstance(kind, list) and kind:
            # Each once: what is below a schema is looked at for each of them.
            kinds = [{**schema, "type": each} for each in dict.fromkeys(map(str, kind))]
            return self._alternatives(rule, "type", kinds, root, depth)
        match kind:
            case None:
                return self._any_value()
            case "string":
                return self._string(rule, schema)
            case "object":
                return f'"{{" {self._members(rule, schema, root, ":", depth)} "}}"'
            case "array":
                return self._array(rule, schema, root, depth)
        self._parts[rule] = Rules("json_schema", schema_text(alone(schema, root), notes=False))
        return f"@{rule}"

    def _string(self, rule: str, schema: Any) -> str:
        quote = self._literals.quotes[0]
        return f"{self._terms(quote)} {self._pairs.text(rule, wanted(schema), quote)}"

    def _array(self, rule: str, schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> str:
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        if not _is_count(low) or not (high is None or _is_count(high)) or schema.get("uniqueItems") is True:
            raise _unsupported("items")
        item = f"{rule}i"
        self._named[item] = self._value(f"{item}v", schema.get("items"), root, depth + 1)
        if high == 0:
            return '"[" "]"'
        most = "" if high is None else high - 1
        several = f"{item} ({self._comma()} {item}){{{max(low - 1, 0)},{most}}}"
        return f'"[" ({several}){"" if low else "?"} "]"'

    def _referred(self, reference: str, root: Mapping[str, Any], depth: int) -> str:
        """A rule for each definition, so that it may refer to itself."""
        if reference not in self._definitions:
            target = resolved(reference, root)
            if target is None:
                raise _unsupported("$ref")
            name = self._definitions[reference] = f"definition{len(self._definitions)}"
            self._named[name] = self._value(f"{name}v", target, root, depth + 1)
        return self._definitions[reference]

    def _any_value(self) -> str:
        if self._literals.python:
            self._parts["any"] = Rules("json_schema", "{}")
            return "@any"
        if "any" not in self._named:
            self._named["any"] = ""
            members, comma = self._any_members(":"), self._comma()
            self._named["any"] = (
                f'{self._string("any_string", None)} | NUMBER | "true" | "false" | "null"'
                f' | "{{" {members} "}}" | "[" (any ({comma} any)*)? "]"'
            )
            self._named["NUMBER"] = r"/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/"
        return "any"

    def _python_value(self, rule: str, schema: Any, root: Mapping[str, Any]) -> str:
        if not isinstance(schema, dict) or not schema:
            return self._any_value()
        self._parts[rule] = Rules("json_schema", schema_text(alone(schema, root), notes=False))
        kind = schema.get("type")
        kinds = kind if isinstance(kind, list) else [kind]
        asked = any(word in schema for word in _ASKING)
        also = [] if asked else [_PYTHON[each] for each in kinds if each in _PYTHON]
        return " | ".join([f"@{rule}", *also])


def _kind_of(schema: Mapping[str, Any]) -> str | None:
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= ITEMS_MAX


def _unsupported(word: str) -> RequestError:
    return RequestError(
        f"cannot honour {word[:40]!r} in the schema of a function in this model's notation of calls",
        kind="unsupported-schema",
        details={"param": "tools"},
    )
