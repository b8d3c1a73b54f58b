"""What an assistant's message is made of while it comes: the vocabulary between parsers of answers and the dialects.

A parser (`llamad.api.turn` says which) turns the text of a model into these, whatever the model's own notation for
thoughts and calls is; each dialect (OpenAI's chat and responses, Anthropic's messages) turns these into its JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """More of what is meant for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """The model calls a tool: the `index`-th call of this message, from 0. Its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the JSON text of a call's arguments; all of them together are one JSON object."""

    index: int
    text: str


Delta = Content | Reasoning | CallBegun | CallArguments


class Parser(Protocol):
    """Takes a message's text apart as it comes. Nothing that it has given out is ever taken back."""

    def push(self, text: str, /) -> list[Delta]:
        """More text; what is certain now."""
        ...

    def finish(self) -> list[Delta]:
        """The message has ended; what was held back."""
        ...
