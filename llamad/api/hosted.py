"""Tools that are no functions: what a vendor's server runs for its clients, such as a web search, or only their models know.

Clients of such a vendor send them with each request, and get along where the model does not call them. Nothing here
could run them, so the model is not told of them, the answer says what was left out (`LEFT_OUT`), and only who demands
one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from llamad.api.fields import Fields, wrong_field
from llamad.api.tools import TOOLS_MAX
from llamad.errors import RequestError

LEFT_OUT = "X-Llamad-Left-Out"
"""The header of an answer that names the types of the tools that were left out of its request."""
KIND_CHARS_MAX = 40
KINDS_MAX = 16


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools of a request: its functions, and the types of all others, each once. `names`: what others are called."""

    functions: tuple[Fields, ...] = ()
    left_out: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def refuse(self, where: str, *wanted: str) -> None:
        """Raises RequestError if what is wanted, by type or name, was left out."""
        for word in wanted:
            if word and word in (*self.left_out, *self.names):
                raise RequestError(
                    f"cannot call {word[:KIND_CHARS_MAX]!r}: this server runs no tools itself, only functions can be called",
                    kind="bad-field",
                    details={"param": where},
                )


def offered(fields: Fields, function: str, default: str = "") -> Offered:
    """What is under `tools`. `function`: the type that functions have, `default`: that of one without.

    Raises RequestError that names the field.
    """
    entries = fields.array("tools") or []
    if len(entries) > TOOLS_MAX:
        raise fields.wrong("tools", f"at most {TOOLS_MAX} tools", entries)
    functions: list[Fields] = []
    others: list[Fields] = []
    for index, entry in enumerate(entries):
        where = fields.path(f"tools[{index}]")
        if not isinstance(entry, dict):
            raise wrong_field(where, "an object with type and name", entry)
        tool = Fields(entry, where)
        kind = tool.text("type", default)
        if not kind:
            raise tool.wrong("type", f"{function!r}, or another type of tool", entry.get("type"))
        (functions if kind == function else others).append(tool)
    return Offered(
        tuple(functions),
        tuple(dict.fromkeys(tool.text("type", "") for tool in others)),
        tuple(name for tool in others if isinstance(name := tool.raw("name"), str)),
    )


def still_allowed(choices: Sequence[Any], left_out: Iterable[str]) -> list[Any]:
    """The tools of a choice of allowed ones, without those that were left out."""
    gone = set(left_out)
    return [
        choice for choice in choices if not (isinstance(choice, dict) and str(choice.get("type")) in gone)
    ]


def header_text(kinds: Sequence[str]) -> str:
    """Types as a header's value, whatever the client has called them."""
    said = [kind[:KIND_CHARS_MAX] for kind in kinds[:KINDS_MAX]]
    return ", ".join(kind if kind.isidentifier() and kind.isascii() else ascii(kind) for kind in said)
