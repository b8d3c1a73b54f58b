"""Fields that would change the answer and are not served: refused by name unless they say what happens anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llamad.api.fields import Fields
from llamad.errors import RequestError


def _empty(value: Any) -> bool:
    return value in (False, 0, "", [], {})


def _unset(value: Any) -> bool:
    return value is None


def _one(value: Any) -> bool:
    return isinstance(value, int) and value == 1


def _off_below_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value <= 0


def _no_choice(value: Any) -> bool:
    return value in ("none", "auto")


def _on(value: Any) -> bool:
    return value is True


def _only_text(value: Any) -> bool:
    return value in (["text"], [])


NEUTRAL: dict[str, Callable[[Any], bool]] = {
    # OpenAI
    "best_of": _one,
    "functions": _empty,
    "function_call": _no_choice,
    "modalities": _only_text,
    "audio": _empty,
    "prediction": _empty,
    "web_search_options": _empty,
    "echo": _empty,
    "suffix": _empty,
    # Ollama: how long a model stays is the daemon's configuration
    "keep_alive": _unset,
    "ttl": _unset,
    # llama.cpp
    "grammar_lazy": _empty,
    "grammar_triggers": _empty,
    "t_max_prompt_ms": _off_below_zero,
    "backend_sampling": _empty,
    "image_data": _empty,
    # What its own chat route hands on to its parser: here the model's template decides.
    "chat_format": _empty,
    "chat_parser": _empty,
    "generation_prompt": _empty,
    "preserved_tokens": _empty,
    "parse_tool_calls": _on,
    "chat_template": _empty,
}
"""Field name to the values that ask for nothing."""

CHAT_ONLY: dict[str, Callable[[Any], bool]] = {
    "tools": _empty,
    "tool_choice": _no_choice,
    "reasoning_control": _empty,
}
"""What only a chat can have, in the same form."""


def refuse_unsupported(fields: Fields, neutral_values: Mapping[str, Callable[[Any], bool]] = NEUTRAL) -> None:
    """Raises RequestError of kind `unsupported-field` for the first field that asks for what is not served."""
    for name in fields.names():
        neutral = neutral_values.get(name)
        if neutral is not None and not neutral(fields.raw(name)):
            raise unsupported(fields.path(name))


def refuse_set(fields: Fields, reasons: Mapping[str, str]) -> None:
    """Raises RequestError of kind `unsupported-field` for the first of these fields that is neither null nor empty."""
    for name, reason in reasons.items():
        if fields.raw(name) is not None and not _empty(fields.raw(name)):
            raise unsupported(fields.path(name), reason)


def unsupported(path: str, what: str = "it is not supported") -> RequestError:
    """The error of a field, or a part of one, that this server does not serve."""
    return RequestError(f"cannot serve {path!r}: {what}", kind="unsupported-field", details={"param": path})
