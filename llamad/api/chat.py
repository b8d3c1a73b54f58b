"""OpenAI's chat completions: the documents of an assistant's message, as a whole and as a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llamad.api.answer import Head, Whole
from llamad.api.chat_parser import PlainParser
from llamad.api.deltas import CallArguments, CallBegun, Content, Delta, Parser, Reasoning
from llamad.api.extras import prompt_progress, timings_so_far
from llamad.api.likelihoods import content
from llamad.api.message import AssistantMessage, Call, read_message
from llamad.api.openai import Completed, Streaming
from llamad.api.sse import Stencil, frame
from llamad.engine.vocabulary import Finished, Likelihood, Progress, Text


class ChatDialect(Completed):
    """`chat.completion` and its chunks, with `n` choices.

    `make_parser`: the reader of one sequence's text (`llamad.api.turn`).
    """

    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(
        self, head: Head, streaming: Streaming, make_parser: Callable[[], Parser] = PlainParser, n: int = 1
    ) -> None:
        super().__init__(head, streaming)
        self._n = n
        self._make_parser = make_parser
        self._streams: dict[int, _Stream] = {}
        self._stencils: dict[tuple[int, type], Stencil] = {}

    def whole(self, answers: Sequence[Whole]) -> dict[str, Any]:
        """One choice a sequence, with the assistant's message."""
        choices = []
        for index, answer in enumerate(answers):
            message = read_message(self._make_parser(), answer.text)
            choices.append(
                {
                    "finish_reason": finish_reason(answer.finished, bool(message.calls)),
                    "index": index,
                    "message": message_document(message),
                    **content(answer.likelihoods),
                }
            )
        return self._document(self.object_name, choices) | self._costs(
            [answer.finished for answer in answers]
        )

    def opening(self) -> list[dict[str, Any]]:
        """The role comes first, with a content of null, so that clients can begin a message."""
        return [self._role(index) for index in range(self._n)]

    def progress(self, index: int, progress: Progress) -> list[dict[str, Any]]:
        """A message that has not begun yet."""
        return [self._role(index) | prompt_progress(progress)]

    def piece(self, index: int, text: Text) -> list[dict[str, Any]]:
        """A chunk for each delta; likelihoods go with the first, and wait for it where there is none yet."""
        stream = self._stream(index)
        stream.untold += text.likelihoods
        chunks = self._chunks(index, stream, stream.parser.push(text.text))
        return [*chunks[:-1], chunks[-1] | timings_so_far(text)] if chunks else []

    def frames(self, index: int, text: Text) -> bytes:
        """The frames of `piece`, by a stencil where it is nothing but more text of one kind."""
        if text.likelihoods or text.timings is not None:
            return super().frames(index, text)
        stream = self._stream(index)
        deltas = stream.parser.push(text.text)
        if len(deltas) == 1 and not stream.untold:
            delta = deltas[0]
            if isinstance(delta, Content | Reasoning):
                return self._stencil(index, type(delta)).filled(delta.text)
        return self.framing.frames(self._chunks(index, stream, deltas))

    def ending(self, index: int, finished: Finished) -> list[dict[str, Any]]:
        """What was held back, then an empty delta with the finish reason."""
        stream = self._stream(index)
        chunks = self._chunks(index, stream, stream.parser.finish())
        reason = finish_reason(finished, stream.calls)
        last = self._delta(index, {}, reason, **content(stream.untold)) | self._ending_costs(finished)
        return [*chunks, last]

    def _stream(self, index: int) -> _Stream:
        if index not in self._streams:
            self._streams[index] = _Stream(self._make_parser())
        return self._streams[index]

    def _stencil(self, index: int, kind: type[Content | Reasoning]) -> Stencil:
        stencil = self._stencils.get((index, kind))
        if stencil is None:
            stencil = Stencil(lambda text: frame(self._delta(index, delta_document(kind(text)), None)))
            self._stencils[index, kind] = stencil
        return stencil

    def _chunks(self, index: int, stream: _Stream, deltas: list[Delta]) -> list[dict[str, Any]]:
        chunks = []
        for delta in deltas:
            stream.calls = stream.calls or isinstance(delta, CallBegun)
            chunks.append(self._delta(index, delta_document(delta), None, **content(stream.untold)))
            stream.untold = ()
        return chunks

    def _role(self, index: int) -> dict[str, Any]:
        return self._delta(index, {"role": "assistant", "content": None}, None)

    def _delta(self, index: int, delta: dict[str, Any], reason: str | None, **more: Any) -> dict[str, Any]:
        return self._chunk([{"finish_reason": reason, "index": index, "delta": delta, **more}])


class _Stream:
    """How far one sequence has come: its parser, whether it has called tools, likelihoods that are still to be told."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.calls = False
        self.untold: tuple[Likelihood, ...] = ()


def finish_reason(finished: Finished, calls: bool) -> str:
    """OpenAI's word for how an answer ended."""
    return "tool_calls" if calls and finished.reason == "stop" else finished.reason


def message_document(message: AssistantMessage) -> dict[str, Any]:
    """The message of a plain answer. One that only calls has a content of null."""
    document: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.reasoning:
        document["reasoning_content"] = message.reasoning
    if message.calls:
        document["content"] = message.content or None
        document["tool_calls"] = [_call(call) for call in message.calls]
    return document


def _call(call: Call) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
        "id": call.id,
    }


def delta_document(delta: Delta) -> dict[str, Any]:
    """The `delta` of a chunk."""
    match delta:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallBegun(index, id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
