"""llama.cpp's own documents: `/completion`, `/tokenize`, `/detokenize`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llamad.api.answer import Framed, Head, Whole, timings
from llamad.api.extras import chosen, prompt_progress, timings_so_far
from llamad.api.fields import Fields
from llamad.api.generation import Generation
from llamad.api.likelihoods import entries
from llamad.api.prompts import TEXT_CHARS_MIN, Prompt, prompt_chars, token_id
from llamad.api.settings import generation_settings
from llamad.api.sse import BARE
from llamad.engine.vocabulary import Finished, Likelihood, Progress, Text
from llamad.errors import LlamadError, RequestError

TOKENIZE_CHARS_MAX = 1 << 20
"""One request's; the worst texts take a microsecond and a half a character, and prompts wait behind it."""
DETOKENIZE_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt as the model has got it: its tokens, and their text with control tokens by their names."""

    n_tokens: int
    text: str


class NativeDialect(Framed):
    """Answers of `/completion`: an object, or an array of them where there are several (`n` for each prompt).

    `prompts`: of each answer.

    A stream has no end marker: the document with `stop: true` is the end.
    """

    framing = BARE

    def __init__(self, head: Head, prompts: Sequence[PromptText], generation: Generation) -> None:
        self._head = head
        self._prompts = prompts
        self._extras = generation.extras
        self._settings = generation_settings(generation)
        self._predicted = [0] * len(prompts)
        self._has_new_line = [False] * len(prompts)

    def whole(self, answers: Sequence[Whole]) -> Any:
        """One document, or an array in the order of the prompts."""
        documents = [self._whole(index, answer) for index, answer in enumerate(answers)]
        return documents[0] if len(documents) == 1 else documents

    def opening(self) -> list[dict[str, Any]]:
        """Nothing comes before the text."""
        return []

    def piece(self, index: int, text: Text) -> list[dict[str, Any]]:
        """New text, with the counts so far."""
        self._predicted[index] += text.tokens
        self._has_new_line[index] |= "\n" in text.text
        more = timings_so_far(text) | _probabilities(text.likelihoods)
        return [self._partial(index, text.text, text.ids, text.slot) | more]

    def progress(self, index: int, progress: Progress) -> list[dict[str, Any]]:
        """No text yet."""
        return [self._partial(index, "", (), -1) | prompt_progress(progress)]

    def ending(self, index: int, finished: Finished) -> list[dict[str, Any]]:
        """The document with `stop: true`; its text has been sent."""
        return [chosen(self._last(index, "", finished.ids, finished), self._extras.response_fields)]

    def closing(self, finished: Sequence[Finished]) -> list[dict[str, Any]]:
        """Nothing comes after the last word."""
        return []

    def failure(self, error: LlamadError) -> dict[str, Any]:
        """The error as a plain answer has it."""
        return error.body()

    def _whole(self, index: int, answer: Whole) -> dict[str, Any]:
        self._has_new_line[index] = "\n" in answer.text
        ids = answer.ids if self._extras.tokens else ()
        document = self._last(index, answer.text, ids, answer.finished) | _probabilities(answer.likelihoods)
        return chosen(document, self._extras.response_fields)

    def _partial(self, index: int, text: str, ids: Sequence[int], slot: int) -> dict[str, Any]:
        return {
            "index": index,
            "content": text,
            "tokens": ids,
            "stop": False,
            "id_slot": slot,
            "tokens_predicted": self._predicted[index],
            "tokens_evaluated": self._prompts[index].n_tokens,
        }

    def _last(self, index: int, text: str, ids: Sequence[int], finished: Finished) -> dict[str, Any]:
        cost = finished.timings
        return {
            "index": index,
            "content": text,
            "tokens": ids,
            "id_slot": finished.slot,
            "stop": True,
            "model": self._head.model,
            "tokens_predicted": cost.predicted_tokens,
            "tokens_evaluated": cost.prompt_tokens,
            "generation_settings": self._settings | {"seed": finished.seed},
            "prompt": self._prompts[index].text,
            "has_new_line": self._has_new_line[index],
            "truncated": finished.truncated,
            "stop_type": _stop_type(finished),
            "stopping_word": finished.stop_word,
            "tokens_cached": cost.cached_tokens,
            "timings": timings(cost),
        }


def _probabilities(likelihoods: Sequence[Likelihood]) -> dict[str, Any]:
    return {"completion_probabilities": entries(likelihoods)} if likelihoods else {}


def _stop_type(finished: Finished) -> str:
    if finished.reason == "length":
        return "limit"
    return "word" if finished.stop_word else "eos"


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """A parsed body of `/tokenize`, with llama-server's defaults. `content`: texts and token ids in their order."""

    content: Prompt = ()
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


def parse_tokenize(document: dict[str, Any]) -> TokenizeRequest:
    """Raises RequestError. No content is an empty text."""
    fields = Fields(document)
    content = _content(fields)
    chars = prompt_chars(content)
    if max(chars, len(content)) > TOKENIZE_CHARS_MAX:
        raise RequestError(
            f"cannot tokenize {len(content)} texts of {chars} characters, {TEXT_CHARS_MIN} or more each, in one request:"
            f" at most {TOKENIZE_CHARS_MAX}"
        )
    return TokenizeRequest(
        content=content,
        add_special=fields.flag("add_special", False),
        parse_special=fields.flag("parse_special", True),
        with_pieces=fields.flag("with_pieces", False),
    )


def _content(fields: Fields) -> Prompt:
    value = fields.raw("content")
    parts = value if isinstance(value, list) else () if value is None else (value,)
    mixed = all(isinstance(part, str) or type(part) is int for part in parts)
    if not mixed or type(value) is int:
        raise fields.wrong("content", "a string, or an array of strings and token ids", value)
    return tuple(parts)


def token_piece(token: int, piece: bytes) -> dict[str, Any]:
    """One token with its text; a piece that is no whole text (half a character) is given as its bytes."""
    try:
        return {"id": token, "piece": piece.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(piece)}


def parse_detokenize(document: dict[str, Any], n_vocab: int) -> tuple[int, ...]:
    """The token ids in `tokens`. Raises RequestError that names the field."""
    fields = Fields(document)
    tokens = fields.array("tokens") or []
    if len(tokens) > DETOKENIZE_MAX:
        raise fields.wrong("tokens", f"at most {DETOKENIZE_MAX} tokens", tokens)
    return tuple(token_id(f"tokens[{index}]", token, n_vocab) for index, token in enumerate(tokens))
