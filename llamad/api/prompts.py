"""Prompts of the completion routes and inputs of the embedding routes: a text, token ids, a mix of both, an object that
has these as `prompt_string` or texts as the parts of its `content`, or several of all these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llamad.api.conversation import text_part
from llamad.api.fields import Fields, wrong_field
from llamad.api.sampling import Vocabulary
from llamad.api.unsupported import unsupported
from llamad.errors import RequestError

PROMPTS_MAX = 128
TEXT_CHARS_MIN = 32
"""Each text is a call of its own."""
PARTS_MAX = 10_000
"""Of one prompt."""

Prompt = tuple[str | int, ...]
"""Texts and token ids in their order. `("Hello",)` is the ordinary case."""


def parse_prompts(
    fields: Fields, vocabulary: Vocabulary, name: str = "prompt", most: int = PROMPTS_MAX
) -> tuple[Prompt, ...]:
    """The prompts in this field, at least one, at `most` so many."""
    value = fields.raw(name)
    if value is None:
        raise fields.wrong(name, "a string or an array", value)
    several = are_several(value)
    prompts = value if several else [value]
    if len(prompts) > most:
        raise RequestError(
            f"cannot take {len(prompts)} prompts in one request: at most {most}",
            kind="too-many-inputs",
            details={"param": fields.path(name)},
        )
    where = fields.path(name)
    return tuple(
        _prompt(f"{where}[{index}]" if several else where, prompt, vocabulary)
        for index, prompt in enumerate(prompts)
    )


def are_several(value: object) -> bool:
    """Whether each part of this is a prompt. An array that holds a number is one prompt, as in llama-server."""
    return isinstance(value, list) and bool(value) and not any(_is_number(part) for part in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _prompt(where: str, value: object, vocabulary: Vocabulary) -> Prompt:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, dict):
        return _of_object(where, value, vocabulary)
    if not isinstance(value, list):
        raise wrong_field(where, "a string or an array of token ids and strings", value)
    if not value:
        raise wrong_field(where, "at least one token or text", value)
    if len(value) > vocabulary.n_ctx:
        # Before each of millions is looked at: this runs where everybody's streams run.
        raise RequestError(
            f"cannot fit a prompt of {len(value)} tokens: it exceeds the available context size of {vocabulary.n_ctx} tokens",
            kind="exceed-context-size",
            details={"n_prompt_tokens": len(value), "n_ctx": vocabulary.n_ctx},
        )
    return tuple(_segment(where, index, part, vocabulary.n_vocab) for index, part in enumerate(value))


def _of_object(where: str, value: dict[str, Any], vocabulary: Vocabulary) -> Prompt:
    """llama-server's forms for prompts that may have media beside their text."""
    if value.get("multimodal_data"):
        raise unsupported(f"{where}.multimodal_data", "this model reads text only")
    if "content" in value:
        return ("".join(_part_texts(f"{where}.content", value["content"])),)
    text = value.get("prompt_string")
    if text is None:
        raise wrong_field(where, "a string, an array of token ids and strings, or an object with one", value)
    if not isinstance(text, str | list):
        raise wrong_field(f"{where}.prompt_string", "a string or an array of token ids and strings", text)
    return _prompt(f"{where}.prompt_string", text, vocabulary)


def _part_texts(where: str, parts: object) -> Iterator[str]:
    if not isinstance(parts, list) or not 0 < len(parts) <= PARTS_MAX:
        raise wrong_field(where, f"an array of 1 to {PARTS_MAX} parts", parts)
    for index, part in enumerate(parts):
        yield text_part(f"{where}[{index}]", part)["text"]


def _segment(where: str, index: int, value: object, n_vocab: int) -> str | int:
    if isinstance(value, str) or (type(value) is int and 0 <= value < n_vocab):
        return value
    return token_id(f"{where}[{index}]", value, n_vocab)


def token_id(where: str, value: object, n_vocab: int) -> int:
    """A token id of the model, or RequestError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n_vocab:
        raise wrong_field(where, f"a token id from 0 to {n_vocab - 1}", value)
    return value


def prompt_chars(prompt: Prompt) -> int:
    """What tokenising it costs, in characters of text; however short a text is, it costs as much as TEXT_CHARS_MIN."""
    return sum(max(TEXT_CHARS_MIN, len(part)) for part in prompt if isinstance(part, str))


def prompt_tokens(prompt: Prompt, vocabulary: Vocabulary) -> tuple[int, ...]:
    """Token ids; a text at the start gets the model's own begin token, where the model wants one."""
    tokens = mixed_tokens(prompt, vocabulary, add_special=True, parse_special=True)
    if not tokens:
        raise RequestError("cannot generate from an empty prompt", kind="empty-prompt")
    return tuple(tokens)


def mixed_tokens(prompt: Prompt, vocabulary: Vocabulary, add_special: bool, parse_special: bool) -> list[int]:
    """Token ids of texts and token ids; `add_special` is for a text at the start."""
    tokens: list[int] = []
    for index, part in enumerate(prompt):
        if isinstance(part, str):
            tokens.extend(vocabulary.tokenize(part, add_special and index == 0, parse_special))
        else:
            tokens.append(part)
    return tokens
