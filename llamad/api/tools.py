"""The tools of a chat request: what the model may call, and whether it has to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from llamad.api.fields import Fields, wrong_field
from llamad.api.unsupported import unsupported
from llamad.errors import RequestError

TOOLS_MAX = 1024
NAME_CHARS_MAX = 256

# What would be written another way within a call of some family.
_NOT_IN_NAMES = frozenset('"\\«»')
_MODES = ("none", "auto", "required")
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is the JSON schema of its arguments, an object, as it came."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    @property
    def schema(self) -> Mapping[str, Any]:
        """What arguments must conform to; a function without parameters gets an empty object."""
        return self.parameters or _NO_PARAMETERS

    def document(self) -> dict[str, Any]:
        """As templates see it: in this order, with nothing else, as llama-server does."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Tools, and how they may be used.

    `choice`: `none`, `auto` (the model decides) or `required` (it calls at least one). `callable`: names of those that may
    be called, () for all. `parallel`: whether one answer may make several calls, None where the request does not say.
    """

    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    callable: tuple[str, ...] = ()
    parallel: bool | None = None

    @property
    def usable(self) -> tuple[Tool, ...]:
        """The tools that this answer may call."""
        if self.choice == "none":
            return ()
        return tuple(tool for tool in self.tools if not self.callable or tool.name in self.callable)

    def documents(self) -> list[dict[str, Any]]:
        """All of them as templates see them, also where none may be called now."""
        return [tool.document() for tool in self.tools]


def parse_toolbox(fields: Fields) -> Toolbox:
    """OpenAI's `tools`, `tool_choice` and `parallel_tool_calls`. Raises RequestError that names the field."""
    entries = fields.array("tools") or []
    if len(entries) > TOOLS_MAX:
        raise fields.wrong("tools", f"at most {TOOLS_MAX} tools", entries)
    tools = tuple(_tool(fields.path(f"tools[{index}]"), entry) for index, entry in enumerate(entries))
    check_names(fields.path("tools"), tools)
    choice, names = _choice(fields, tools)
    parallel = None if fields.raw("parallel_tool_calls") is None else fields.flag("parallel_tool_calls", True)
    if choice == "required" and len(names) == 1 and parallel is None:
        # Who names a function wants it called once.
        parallel = False
    return Toolbox(tools, choice, names, parallel)


def check_names(where: str, tools: Iterable[Tool]) -> None:
    """Raises RequestError if two tools have the same name."""
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise RequestError(
                f"cannot take two tools of the name {tool.name!r}", kind="bad-field", details={"param": where}
            )
        seen.add(tool.name)


def _tool(where: str, entry: object) -> Tool:
    if not isinstance(entry, dict):
        raise wrong_field(where, "an object with type and function", entry)
    fields = Fields(entry, where)
    kind = fields.text("type", "")
    if kind != "function":
        raise unsupported(fields.path("type"), f"only tools of type 'function' are, got {kind[:40]!r}")
    return make_tool(fields.nested("function"), "parameters")


def make_tool(fields: Fields, schema: str) -> Tool:
    """A tool of the object that has its `name`, `description` and, under the name `schema`, its parameters."""
    name = fields.text("name", "")
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or set(name) & _NOT_IN_NAMES:
        raise fields.wrong(
            "name", f"a name of 1 to {NAME_CHARS_MAX} printable characters without quotes", fields.raw("name")
        )
    parameters = fields.raw(schema)
    if parameters is not None and not isinstance(parameters, dict):
        raise fields.wrong(schema, "a JSON schema, which is an object", parameters)
    return Tool(name, fields.text("description", ""), parameters or {})


def _choice(fields: Fields, tools: tuple[Tool, ...]) -> tuple[str, tuple[str, ...]]:
    value = fields.raw("tool_choice")
    if isinstance(value, dict):
        choice = fields.nested("tool_choice")
        kind = choice.text("type", "")
        if kind == "allowed_tools":
            return _allowed(choice.nested("allowed_tools"), tools)
        if kind != "function":
            raise choice.wrong("type", "'function' or 'allowed_tools'", kind)
        # Responses and older clients put the name beside the type.
        named = choice.nested("function") if choice.raw("function") is not None else choice
        return "required", (_known(named, tools),)
    mode = fields.text("tool_choice", "auto")
    if mode not in _MODES:
        raise fields.wrong("tool_choice", "'none', 'auto', 'required' or an object with a function", mode)
    if mode == "required" and not tools:
        raise RequestError(
            "cannot require a call: the request has no tools",
            kind="bad-field",
            details={"param": "tool_choice"},
        )
    return mode, ()


def _allowed(fields: Fields, tools: tuple[Tool, ...]) -> tuple[str, tuple[str, ...]]:
    mode = fields.text("mode", "auto")
    if mode not in ("auto", "required"):
        raise fields.wrong("mode", "'auto' or 'required'", mode)
    entries = fields.array("tools")
    if not entries:
        raise fields.wrong("tools", "an array of at least one tool", entries)
    names = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise fields.wrong(f"tools[{index}]", "an object with type and function", entry)
        inner = Fields(entry, fields.path(f"tools[{index}]"))
        names.append(_known(inner.nested("function") if inner.raw("function") is not None else inner, tools))
    return mode, tuple(names)


def _known(fields: Fields, tools: tuple[Tool, ...]) -> str:
    name = fields.text("name", "")
    if all(tool.name != name for tool in tools):
        known = ", ".join(repr(tool.name) for tool in tools[:8]) or "none"
        raise RequestError(
            f"cannot call {name[:80]!r}: it is not among the request's tools ({known})",
            kind="bad-field",
            details={"param": fields.path("name")},
        )
    return name
