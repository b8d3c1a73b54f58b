"""An assistant's message as a whole: its deltas put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llamad.api.deltas import CallArguments, CallBegun, Content, Delta, Parser, Reasoning


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model calls. `arguments` is the text of a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model says, what it thought before, and what it calls."""

    content: str
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


def read_message(parser: Parser, text: str) -> AssistantMessage:
    """The message that is `text`, read by a new parser."""
    return assembled([*parser.push(text), *parser.finish()])


def assembled(deltas: Iterable[Delta]) -> AssistantMessage:
    """All of a message's deltas as one message."""
    content, reasoning = [], []
    begun: list[CallBegun] = []
    arguments: list[list[str]] = []
    for delta in deltas:
        match delta:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallBegun():
                begun.append(delta)
                arguments.append([])
            case CallArguments(index, text):
                arguments[index].append(text)
    calls = tuple(
        Call(call.id, call.name, "".join(parts)) for call, parts in zip(begun, arguments, strict=True)
    )
    return AssistantMessage("".join(content), "".join(reasoning), calls)
