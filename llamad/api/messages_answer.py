"""Anthropic's messages: the answer, as a whole and as a stream of named events.

    message_start  (content_block_start  content_block_delta…  content_block_stop)…  message_delta  message_stop

Blocks follow each other: a thought, a text, a call each, in the order in which the model makes them. Thoughts have an
empty signature, as nothing here signs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from llamad.api.answer import Framed, Head, Whole, timings
from llamad.api.deltas import CallArguments, CallBegun, Content, Delta, Parser, Reasoning
from llamad.api.message import AssistantMessage, Call, read_message
from llamad.api.sse import ANTHROPIC
from llamad.engine.vocabulary import Finished, Progress, Text, Timings
from llamad.errors import LlamadError, anthropic_error

Document = dict[str, Any]


class MessagesDialect(Framed):
    """One message. `stops`, `shows_thoughts`: see `MessagesRequest`; `max_tokens`: the request's.

    A stream begins with what of the prompt was cached, so its first Text has to tell timings.
    """

    framing = ANTHROPIC

    def __init__(
        self,
        head: Head,
        make_parser: Callable[[], Parser],
        max_tokens: int,
        stops: Collection[str] = (),
        shows_thoughts: bool = True,
    ) -> None:
        self._head = head
        self._make_parser = make_parser
        self._parser = make_parser()
        self._begun = False
        self._max_tokens = max_tokens
        self._stops = stops
        self._shows_thoughts = shows_thoughts
        self._blocks = _Blocks(shows_thoughts)

    def whole(self, answers: Sequence[Whole]) -> Document:
        """The message with all its blocks."""
        (answer,) = answers
        message = read_message(self._make_parser(), answer.text)
        return self._message(_blocks_of(message, self._shows_thoughts)) | {
            **self._outcome(answer.finished, bool(message.calls)),
            **_costs(answer.finished.timings),
        }

    def opening(self) -> list[Document]:
        """Nothing, until it is known what of the prompt was cached."""
        return []

    def piece(self, index: int, text: Text) -> list[Document]:
        """More of a block, or another one."""
        return self._begin(text.timings) + self._events(self._parser.push(text.text))

    def progress(self, index: int, progress: Progress) -> list[Document]:
        """There is no event for it, and no request that asks for it."""
        return []

    def ending(self, index: int, finished: Finished) -> list[Document]:
        """What was held back, the end of the last block, why the message ends, and that it does."""
        events = self._begin(finished.timings) + self._events(self._parser.finish()) + self._blocks.close()
        outcome = self._outcome(finished, self._blocks.calls)
        return [
            *events,
            {"type": "message_delta", "delta": outcome, **_costs(finished.timings)},
            {"type": "message_stop"},
        ]

    def closing(self, finished: Sequence[Finished]) -> list[Document]:
        """Nothing comes after the only message."""
        return []

    def failure(self, error: LlamadError) -> Document:
        """An event of type `error`."""
        return anthropic_error(error.body())

    def _begin(self, cost: Timings | None) -> list[Document]:
        """The message without content, once."""
        if self._begun:
            return []
        self._begun = True
        message = self._message([]) | {"stop_reason": None, "stop_sequence": None}
        usage = _usage(replace(cost or Timings(), predicted_tokens=0))
        return [{"type": "message_start", "message": message | {"usage": usage}}]

    def _events(self, deltas: list[Delta]) -> list[Document]:
        return [event for delta in deltas for event in self._blocks.take(delta)]

    def _message(self, content: list[Document]) -> Document:
        return {
            "id": self._head.id,
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": content,
        }

    def _outcome(self, finished: Finished, calls: bool) -> Document:
        """A stop of the operator's or the template's is the end of a turn as any other."""
        word = finished.stop_word if finished.stop_word in self._stops else None
        if finished.reason == "length":
            full = finished.truncated and finished.timings.predicted_tokens < self._max_tokens
            reason = "model_context_window_exceeded" if full else "max_tokens"
        elif word is not None:
            reason = "stop_sequence"
        else:
            reason = "tool_use" if calls else "end_turn"
        return {"stop_reason": reason, "stop_sequence": word}


class _Blocks:
    """The blocks of a stream: which one is open, and how many there have been."""

    def __init__(self, shows_thoughts: bool) -> None:
        self.calls = False
        self._shows_thoughts = shows_thoughts
        self._count = 0
        self._open: type[Delta] | None = None

    def take(self, delta: Delta) -> list[Document]:
        """The events that one delta makes."""
        match delta:
            case Reasoning(text):
                events = self._switch(Reasoning, {"type": "thinking", "thinking": "", "signature": ""})
                if self._shows_thoughts:
                    events.append(self._delta("thinking_delta", "thinking", text))
                return events
            case Content(text):
                events = self._switch(Content, {"type": "text", "text": ""})
                return [*events, self._delta("text_delta", "text", text)]
            case CallBegun(_, id, name):
                self.calls = True
                events = self.close()
                return events + self._switch(
                    CallBegun, {"type": "tool_use", "id": id, "name": name, "input": {}}
                )
            case CallArguments(_, text):
                return [self._delta("input_json_delta", "partial_json", text)]

    def close(self) -> list[Document]:
        """End the open block, if there is one."""
        kind, self._open = self._open, None
        if kind is None:
            return []
        signature = [self._delta("signature_delta", "signature", "")] if kind is Reasoning else []
        return [*signature, {"type": "content_block_stop", "index": self._count - 1}]

    def _switch(self, kind: type[Delta], begun: Document) -> list[Document]:
        """Make a block of this kind the open one."""
        if self._open is kind:
            return []
        ended = self.close()
        self._open = kind
        self._count += 1
        return [*ended, {"type": "content_block_start", "index": self._count - 1, "content_block": begun}]

    def _delta(self, kind: str, name: str, text: str) -> Document:
        return {
            "type": "content_block_delta",
            "index": self._count - 1,
            "delta": {"type": kind, name: text},
        }


def _blocks_of(message: AssistantMessage, shows_thoughts: bool) -> list[Document]:
    blocks: list[Document] = []
    if message.reasoning:
        text = message.reasoning if shows_thoughts else ""
        blocks.append({"type": "thinking", "thinking": text, "signature": ""})
    if message.content:
        blocks.append({"type": "text", "text": message.content})
    return blocks + [_tool_use(call) for call in message.calls]


def _tool_use(call: Call) -> Document:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}


def _input(arguments: str) -> Any:
    """The object; an empty one where `max_tokens` has cut it short, which the stop reason tells."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {}


def _usage(cost: Timings) -> Document:
    """`input_tokens` are those that were evaluated: Anthropic counts without what it read from its cache."""
    return {
        "input_tokens": cost.prompt_tokens - cost.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cost.cached_tokens,
        "output_tokens": cost.predicted_tokens,
    }


def _costs(cost: Timings) -> Document:
    return {"usage": _usage(cost), "timings": timings(cost)}
