"""What tests of rules share: families, a vocabulary of bytes and marks, and how a text goes through rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from llamad.api.chat_rules import Demands, chat_rules
from llamad.api.families import notations
from llamad.api.notation import Notation, Spelling, Thought, possible_tokens
from llamad.api.tools import Tool
from llamad.engine.guidance import Matcher
from llamad.engine.vocabulary import Rules

FAMILIES = {notation.name: notation for notation in notations()}
THINK = Thought("<think>", "</think>")
TEXT = {"type": "string"}
CITY = {"type": "object", "properties": {"city": TEXT, "days": {"type": "integer"}}, "required": ["city"]}
TOOLS = (
    Tool("weather", "of a city", CITY),
    Tool("weather_map", "", {"type": "object", "properties": {"zoom": {"type": "number"}, "area": {}}}),
    Tool("now", "", {}),
)
MARKS = sorted(
    {token for notation in notations() for token in possible_tokens(notation)} | {"<think>", "</think>"}
)
"""All that may be a control token; in the vocabulary of these tests they follow the 256 bytes, and an end."""
END = 256
IDS = {mark: END + 1 + index for index, mark in enumerate(MARKS)}


def notation_of(family: str) -> Notation:
    notation = FAMILIES[family]
    return notation if notation.thought else replace(notation, thought=THINK)


def spelling(family: str, control: bool) -> Spelling:
    """With all marks as control tokens, or with none."""
    notation = notation_of(family)
    marks = possible_tokens(notation) if control else []
    return Spelling(notation, {mark: IDS[mark] for mark in marks})


def tokens(spelled: Spelling, text: str) -> list[int]:
    ids: list[int] = []
    for piece in spelled.pieces(text):
        ids += [piece] if isinstance(piece, int) else list(piece.encode())
    return ids


def follow(matcher: Matcher, ids: Sequence[int]) -> int:
    """How many tokens are taken."""
    for count, id in enumerate(ids):
        if not matcher.take(id):
            return count
    return len(ids)


def rules(spelled: Spelling, **demands: Any) -> Rules:
    """The rules of an answer with these demands; its tools are `TOOLS`."""
    made = chat_rules(spelled, Demands(**{"tools": TOOLS, **demands}))
    assert made is not None
    return made


def may_end(matcher: Matcher) -> bool:
    return matcher.complete or END in matcher.allowed(np.zeros(1), 0)
