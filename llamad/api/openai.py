"""OpenAI's chat and text completions, in the form that llama-server gives them (with its `timings`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llamad.api.answer import Framed, Head, Whole, timings, usage
from llamad.api.conversation import Conversation, parse_conversation
from llamad.api.extras import prompt_progress, timings_so_far
from llamad.api.fields import Fields
from llamad.api.generation import Generation, parse_generation
from llamad.api.likelihoods import columns
from llamad.api.prompts import Prompt, parse_prompts
from llamad.api.sampling import Vocabulary
from llamad.api.sse import OPENAI, Stencil, frame
from llamad.api.unsupported import CHAT_ONLY, refuse_unsupported
from llamad.engine.vocabulary import Finished, Progress, Text
from llamad.errors import LlamadError, RequestError

PING_INTERVAL_S_MAX = 2**31 - 1
SEQUENCES_MAX = 128
"""Answers in one request; the engine takes twice as many in all."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """Whether the answer comes as a stream, and whether that ends with a chunk of usage.

    `ping_interval_s`: how long the stream may be silent before a comment says that it lives; 0 and less: for ever.
    None: the request leaves it to the server.
    """

    wanted: bool = False
    include_usage: bool = False
    ping_interval_s: int | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A parsed body of `/v1/chat/completions`. `model` is empty if the client named none."""

    model: str
    conversation: Conversation
    generation: Generation
    streaming: Streaming


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A parsed body of `/v1/completions` or `/completion`; each prompt is a sequence of its own."""

    model: str
    prompts: tuple[Prompt, ...]
    generation: Generation
    streaming: Streaming


def parse_chat(document: dict[str, Any], defaults: Generation, vocabulary: Vocabulary) -> ChatRequest:
    """Raises RequestError that names the field."""
    fields = Fields(document)
    return ChatRequest(
        model=fields.text("model", ""),
        conversation=parse_conversation(fields),
        generation=parse_generation(fields, defaults, vocabulary),
        streaming=parse_streaming(fields),
    )


def parse_completion(
    document: dict[str, Any], defaults: Generation, vocabulary: Vocabulary
) -> CompletionRequest:
    """Raises RequestError that names the field."""
    fields = Fields(document)
    refuse_unsupported(fields, CHAT_ONLY)
    prompts = parse_prompts(fields, vocabulary)
    generation = parse_generation(fields, defaults, vocabulary)
    if len(prompts) * generation.n > SEQUENCES_MAX:
        raise RequestError(
            f"cannot give {generation.n} answers to each of {len(prompts)} prompts: {SEQUENCES_MAX} at most in one request",
            kind="bad-field",
            details={"param": "n"},
        )
    return CompletionRequest(
        model=fields.text("model", ""),
        prompts=prompts,
        generation=generation,
        streaming=parse_streaming(fields),
    )


def parse_streaming(fields: Fields) -> Streaming:
    """Raises RequestError that names the field."""
    pings = "sse_ping_interval"
    return Streaming(
        wanted=fields.flag("stream", False),
        include_usage=fields.nested("stream_options").flag("include_usage", False),
        ping_interval_s=None
        if fields.raw(pings) is None
        else fields.integer(pings, 0, -1, PING_INTERVAL_S_MAX),
    )


class Completed(Framed):
    """What both kinds of answer share: the head of every document, and the chunk of usage at the end."""

    framing = OPENAI
    object_name = ""
    chunk_name = ""

    def __init__(self, head: Head, streaming: Streaming) -> None:
        self._head = head
        self._include_usage = streaming.include_usage

    def closing(self, finished: Sequence[Finished]) -> list[dict[str, Any]]:
        """The chunk of usage has no choices: OpenAI's clients tell it by that."""
        if not self._include_usage:
            return []
        return [self._chunk([]) | self._costs(finished)]

    def failure(self, error: LlamadError) -> dict[str, Any]:
        """The error as a plain answer has it, in the place of a chunk."""
        return error.body()

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self._document(self.chunk_name, choices)

    def _document(self, name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = self._head
        return {
            "choices": choices,
            "created": head.created,
            "id": head.id,
            "model": head.model,
            "system_fingerprint": head.fingerprint,
            "object": name,
        }

    def _costs(self, finished: Sequence[Finished]) -> dict[str, Any]:
        """Usage of all sequences; timings only where they are of one."""
        costs: dict[str, Any] = {"usage": usage([last.timings for last in finished])}
        if len(finished) == 1:
            costs["timings"] = timings(finished[0].timings)
        return costs

    def _ending_costs(self, finished: Finished) -> dict[str, Any]:
        """llama-server hangs timings on the last chunk: on this one if none with usage follows."""
        return {} if self._include_usage else {"timings": timings(finished.timings)}


class CompletionDialect(Completed):
    """`text_completion`; each prompt has its `n` choices, one after another."""

    object_name = "text_completion"
    chunk_name = "text_completion"

    def __init__(self, head: Head, streaming: Streaming) -> None:
        super().__init__(head, streaming)
        self._sent_chars: dict[int, int] = {}
        self._stencils: dict[int, Stencil] = {}

    def whole(self, answers: Sequence[Whole]) -> dict[str, Any]:
        """The choices in the order of the prompts."""
        choices = [
            _choice(index, answer.text, answer.finished.reason, columns(answer.likelihoods, 0))
            for index, answer in enumerate(answers)
        ]
        return self._document(self.object_name, choices) | self._costs(
            [answer.finished for answer in answers]
        )

    def opening(self) -> list[dict[str, Any]]:
        """Nothing comes before the text."""
        return []

    def piece(self, index: int, text: Text) -> list[dict[str, Any]]:
        """New text."""
        offset = self._sent_chars.get(index, 0)
        self._sent_chars[index] = offset + len(text.text)
        choice = _choice(index, text.text, None, columns(text.likelihoods, offset))
        return [self._chunk([choice]) | timings_so_far(text)]

    def frames(self, index: int, text: Text) -> bytes:
        """The frame of `piece`, by a stencil where it is nothing but text."""
        if text.likelihoods or text.timings is not None:
            return super().frames(index, text)
        self._sent_chars[index] = self._sent_chars.get(index, 0) + len(text.text)
        stencil = self._stencils.get(index)
        if stencil is None:
            stencil = Stencil(lambda text: frame(self._chunk([_choice(index, text, None)])))
            self._stencils[index] = stencil
        return stencil.filled(text.text)

    def progress(self, index: int, progress: Progress) -> list[dict[str, Any]]:
        """No text yet."""
        return [self._chunk([_choice(index, "", None)]) | prompt_progress(progress)]

    def ending(self, index: int, finished: Finished) -> list[dict[str, Any]]:
        """No text, and the finish reason; with what it cost, as in llama-server, where no chunk of usage follows."""
        costs = self._ending_costs(finished)
        if not self._include_usage:
            costs["usage"] = usage([finished.timings])
        return [self._chunk([_choice(index, "", finished.reason)]) | costs]


def _choice(
    index: int, text: str, reason: str | None, logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}
