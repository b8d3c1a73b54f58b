"""OpenAI's responses: the answer, as a whole and as a stream of numbered, named events.

    response.created  response.in_progress
    response.output_item.added  …  response.output_item.done      a thought, a message, a call each, one after another
    response.completed, or response.incomplete

Inside of a thought there are `response.reasoning_text.delta`s and `.done`, of a message a content part with
`response.output_text.delta`s, of a call `response.function_call_arguments.delta`s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llamad.api.answer import Framed, Head, Whole, timings
from llamad.api.deltas import CallArguments, CallBegun, Content, Delta, Parser, Reasoning
from llamad.api.extras import prompt_progress, timings_so_far
from llamad.api.sse import NAMED
from llamad.engine.vocabulary import Finished, Progress, Text, Timings
from llamad.errors import LlamadError

Document = dict[str, Any]


class ResponsesDialect(Framed):
    """One response. `echo`: see `ResponsesRequest`; `now`: the wall clock in seconds."""

    framing = NAMED

    def __init__(
        self, head: Head, make_parser: Callable[[], Parser], echo: Document, now: Callable[[], float]
    ) -> None:
        self._head = head
        self._parser = make_parser()
        self._echo = echo
        self._now = now
        self._output = _Output(head.id.partition("_")[2])
        self._reasoning = _ReasoningTokens()
        self._sent = 0

    def whole(self, answers: Sequence[Whole]) -> Document:
        """The response with all its output: what the stream's last event would say."""
        (answer,) = answers
        for text in answer.pieces:
            self._take(text)
        self._finish(answer.finished)
        return self._ended(answer.finished) | {"timings": timings(answer.finished.timings)}

    def opening(self) -> list[Document]:
        """A response that is in progress."""
        response = self._response("in_progress")
        return self._numbered(
            [
                {"type": "response.created", "response": response},
                {"type": "response.in_progress", "response": response},
            ]
        )

    def piece(self, index: int, text: Text) -> list[Document]:
        """More of an item, or another one; with timings in the last event where a request is told them all along."""
        events = self._take(text)
        return self._numbered([*events[:-1], events[-1] | timings_so_far(text)] if events else [])

    def progress(self, index: int, progress: Progress) -> list[Document]:
        """Still in progress."""
        event = {"type": "response.in_progress", "response": self._response("in_progress")}
        return self._numbered([event | prompt_progress(progress)])

    def ending(self, index: int, finished: Finished) -> list[Document]:
        """What was held back, the end of the last item, and the whole response."""
        events = self._finish(finished)
        response = self._ended(finished)
        last = {"type": f"response.{response['status']}", "response": response}
        return self._numbered([*events, last | {"timings": timings(finished.timings)}])

    def closing(self, finished: Sequence[Finished]) -> list[Document]:
        """Nothing comes after the only response."""
        return []

    def failure(self, error: LlamadError) -> Document:
        """An event of type `error`; `error` is what makes the official client raise it."""
        body = error.body()["error"]
        document = {
            "type": "error",
            "code": error.kind,
            "message": error.message,
            "param": body.get("param"),
            "error": body,
        }
        return self._numbered([document])[0]

    def _take(self, text: Text) -> list[Document]:
        deltas = self._parser.push(text.text)
        self._reasoning.count(deltas, text.tokens)
        return [event for delta in deltas for event in self._output.take(delta)]

    def _finish(self, finished: Finished) -> list[Document]:
        events = [event for delta in self._parser.finish() for event in self._output.take(delta)]
        return events + self._output.close("completed" if finished.reason == "stop" else "incomplete")

    def _numbered(self, events: list[Document]) -> list[Document]:
        first, self._sent = self._sent, self._sent + len(events)
        return [event | {"sequence_number": first + index} for index, event in enumerate(events)]

    def _response(self, status: str, **more: Any) -> Document:
        return {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created,
            "status": status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "model": self._head.model,
            "output": [],
            **self._echo,
            "usage": None,
            **more,
        }

    def _ended(self, finished: Finished) -> Document:
        whole = finished.reason == "stop"
        return self._response(
            "completed" if whole else "incomplete",
            completed_at=int(self._now()) if whole else None,
            incomplete_details=None if whole else {"reason": "max_output_tokens"},
            output=self._output.items,
            usage=self._usage(finished.timings),
        )

    def _usage(self, cost: Timings) -> Document:
        return {
            "input_tokens": cost.prompt_tokens,
            "input_tokens_details": {"cached_tokens": cost.cached_tokens},
            "output_tokens": cost.predicted_tokens,
            "output_tokens_details": {"reasoning_tokens": self._reasoning.tokens},
            "total_tokens": cost.prompt_tokens + cost.predicted_tokens,
        }


class _ReasoningTokens:
    """How many tokens were thoughts: those that came from the first word of one to the first word of something else."""

    def __init__(self) -> None:
        self.tokens = 0
        self._thinking = False

    def count(self, deltas: list[Delta], tokens: int) -> None:
        if deltas:
            self._thinking = isinstance(deltas[-1], Reasoning)
        if self._thinking:
            self.tokens += tokens


@dataclass(slots=True)
class _Item:
    """An item of the output that is open. `begun`: it without what follows; `texts`: that, so far."""

    kind: type[Delta]
    begun: Document
    texts: list[str] = field(default_factory=list)


class _Output:
    """The items of a response, one after another."""

    def __init__(self, stem: str) -> None:
        self.items: list[Document] = []
        self._stem = stem
        self._open: _Item | None = None

    def take(self, delta: Delta) -> list[Document]:
        """The events that one delta makes."""
        match delta:
            case Reasoning(text):
                events = self._switch(Reasoning, "rs", {"type": "reasoning", "summary": []})
                return events + self._more("response.reasoning_text.delta", text, content_index=0)
            case Content(text):
                events = self._switch(Content, "msg", {"type": "message", "role": "assistant"})
                return events + self._more("response.output_text.delta", text, content_index=0, logprobs=[])
            case CallBegun(_, id, name):
                return self._switch(CallBegun, "fc", {"type": "function_call", "call_id": id, "name": name})
            case CallArguments(_, text):
                return self._more("response.function_call_arguments.delta", text)

    def close(self, status: str = "completed") -> list[Document]:
        """End the open item, if there is one."""
        if self._open is None:
            return []
        item, self._open = self._open, None
        text, place = "".join(item.texts), self._place(item)
        done = _filled(item, text, status)
        index = len(self.items)
        self.items.append(done)
        ended = {"type": "response.output_item.done", "output_index": index, "item": done}
        if item.kind is CallBegun:
            name = item.begun["name"]
            last = {"type": "response.function_call_arguments.done", **place, "name": name, "arguments": text}
            return [last, ended]
        place["content_index"] = 0
        if item.kind is Reasoning:
            return [{"type": "response.reasoning_text.done", **place, "text": text}, ended]
        return [
            {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **place, "part": _text_part(text)},
            ended,
        ]

    def _switch(self, kind: type[Delta], prefix: str, begun: Document) -> list[Document]:
        """Make an item of this kind the open one. Each call is an item of its own."""
        if self._open is not None and self._open.kind is kind and kind is not CallBegun:
            return []
        events = self.close()
        index = len(self.items)
        self._open = item = _Item(kind, {"id": f"{prefix}_{self._stem}{index:02x}", **begun})
        events.append({"type": "response.output_item.added", "output_index": index, "item": _begun(item)})
        if kind is Content:
            place = {**self._place(item), "content_index": 0}
            events.append({"type": "response.content_part.added", **place, "part": _text_part("")})
        return events

    def _more(self, kind: str, text: str, **more: Any) -> list[Document]:
        assert self._open is not None
        self._open.texts.append(text)
        return [{"type": kind, **self._place(self._open), **more, "delta": text}]

    def _place(self, item: _Item) -> Document:
        return {"item_id": item.begun["id"], "output_index": len(self.items)}


def _begun(item: _Item) -> Document:
    empty: Document = {"arguments": ""} if item.kind is CallBegun else {"content": []}
    return {**item.begun, **empty, "status": "in_progress"}


def _filled(item: _Item, text: str, status: str) -> Document:
    if item.kind is CallBegun:
        filling: Document = {"arguments": text}
    elif item.kind is Reasoning:
        filling = {"content": [{"type": "reasoning_text", "text": text}], "encrypted_content": ""}
    else:
        filling = {"content": [_text_part(text)]}
    return {**item.begun, **filling, "status": status}


def _text_part(text: str) -> Document:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
