"""Chat messages: what may stand in a request, and the form that the model's template wants them in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llamad.api.fields import Fields, wrong_field
from llamad.api.unsupported import unsupported
from llamad.errors import RequestError

MESSAGES_MAX = 10_000

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a chat template is given. `prefill` is the begun answer that the model is to go on with."""

    messages: tuple[Message, ...]
    prefill: str = ""
    add_generation_prompt: bool = True
    variables: dict[str, Any] = field(default_factory=dict)


def parse_conversation(fields: Fields) -> Conversation:
    """`messages` and what goes with them. A last message of the assistant is a begun answer, as in llama-server."""
    messages = fields.array("messages")
    if not messages:
        raise fields.wrong("messages", "an array of at least one message", messages)
    if len(messages) > MESSAGES_MAX:
        raise fields.wrong("messages", f"at most {MESSAGES_MAX} messages", messages)
    parsed = [_message(f"messages[{index}]", message) for index, message in enumerate(messages)]
    prefill = _take_prefill(parsed)
    return Conversation(
        tuple(parsed),
        prefill,
        fields.flag("add_generation_prompt", True) or bool(prefill),
        _variables(fields),
    )


def _message(where: str, message: object) -> Message:
    if not isinstance(message, dict):
        raise wrong_field(where, "an object with role and content", message)
    fields = Fields(message, where)
    role = fields.text("role", "")
    if not role:
        raise fields.wrong("role", "a string", fields.raw("role"))
    if role == "tool" or fields.raw("tool_calls"):
        raise unsupported(
            fields.path("tool_calls" if role != "tool" else "role"), "tool calls are not supported"
        )
    _check_content(fields)
    return message


def _check_content(fields: Fields) -> None:
    content = fields.raw("content")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise fields.wrong("content", "a string or an array of parts", content)
    for index, part in enumerate(content):
        where = fields.path(f"content[{index}]")
        if not isinstance(part, dict):
            raise wrong_field(where, "an object with type and text", part)
        kind = part.get("type")
        if kind != "text":
            raise unsupported(f"{where}.type", f"only text parts are supported, got {str(kind)[:40]!r}")
        if not isinstance(part.get("text"), str):
            raise wrong_field(f"{where}.text", "a string", part.get("text"))


def _take_prefill(messages: list[Message]) -> str:
    if messages[-1]["role"] != "assistant":
        return ""
    prefill = plain_text(messages.pop()["content"])
    if messages and messages[-1]["role"] == "assistant":
        raise RequestError("cannot go on with an answer: the last two messages are both the assistant's")
    if not messages:
        raise RequestError("cannot go on with an answer: there is no message before it")
    return prefill


def _variables(fields: Fields) -> dict[str, Any]:
    """`chat_template_kwargs`, and `reasoning_effort`, which templates that know it read under that name."""
    kwargs = fields.raw("chat_template_kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise fields.wrong("chat_template_kwargs", "an object", kwargs)
    variables = dict(kwargs or {})
    effort = fields.text("reasoning_effort", "")
    if effort:
        variables.setdefault("reasoning_effort", effort)
    return variables


def plain_text(content: str | list[dict[str, Any]]) -> str:
    """Content as one text; parts are joined by newlines, as llama-server does."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content)


def with_plain_content(message: Message) -> Message:
    """The message for a template that takes content as a text."""
    return {**message, "content": plain_text(message["content"])}


def with_part_content(message: Message) -> Message:
    """The message for a template that takes content as a list of parts."""
    content = message["content"]
    return {
        **message,
        "content": [{"type": "text", "text": content}] if isinstance(content, str) else content,
    }
