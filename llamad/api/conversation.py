"""Chat messages: what may stand in a request, and the form that templates know them in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from llamad.api.fields import Fields, wrong_field
from llamad.api.thinking import Thinking, parse_thinking
from llamad.api.tools import Toolbox, parse_toolbox
from llamad.api.unsupported import unsupported
from llamad.errors import RequestError

MESSAGES_MAX = 10_000

Message = dict[str, Any]
"""What templates know of a message: `role`, `content` (a text or a list of parts) and, where they are there,
`reasoning_content`, `name`, `tool_call_id` and `tool_calls` (OpenAI's, `arguments` as JSON text). Nothing else."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a chat template is given.

    `prefill` is the begun answer that the model is to go on with, `thought` what it had thought before that, and
    `continued` whether the request says so in words.
    """

    messages: tuple[Message, ...]
    prefill: str = ""
    add_generation_prompt: bool = True
    variables: dict[str, Any] = field(default_factory=dict)
    toolbox: Toolbox = field(default_factory=Toolbox)
    thought: str = ""
    thinking: Thinking = field(default_factory=Thinking)
    continued: bool = False

    @property
    def goes_on(self) -> bool:
        """Is the model to go on with a begun answer?"""
        return bool(self.prefill or self.thought)

    def without_prefill(self) -> Conversation:
        """The same, but that a begun answer is one that has been given."""
        if not self.goes_on:
            return self
        answer: Message = {"role": "assistant", "content": self.prefill}
        if self.thought:
            answer["reasoning_content"] = self.thought
        return replace(self, messages=(*self.messages, answer), prefill="", thought="")


def parse_conversation(fields: Fields) -> Conversation:
    """`messages` and what goes with them. A last message of the assistant is a begun answer, as in llama-server."""
    parsed = [_message(message) for message in message_fields(fields)]
    begun = _take_begun(parsed)
    continued = _is_continued(fields, begun)
    thinking, variables = parse_thinking(fields)
    return Conversation(
        tuple(parsed),
        plain_text(begun.get("content", ""), "\n\n"),
        fields.flag("add_generation_prompt", True) or bool(begun),
        variables,
        parse_toolbox(fields),
        begun.get("reasoning_content", ""),
        thinking,
        continued,
    )


def _is_continued(fields: Fields, begun: Message) -> bool:
    """`continue_final_message`, true or what of the begun answer the model goes on with; RequestError where that is not
    begun."""
    name = "continue_final_message"
    wanted = fields.raw(name)
    if wanted in (None, False):
        return False
    if wanted not in (True, "content", "reasoning_content"):
        raise fields.wrong(name, 'true, false, "content" or "reasoning_content"', wanted)
    if fields.raw("add_generation_prompt") is True:
        raise RequestError(
            f"cannot follow both 'add_generation_prompt' and '{name}': the one begins an answer, the other goes on with one",
            kind="bad-field",
            details={"param": name},
        )
    last = "content" if begun.get("content") else "reasoning_content"
    if wanted not in (True, last) or not begun.get(last):
        part = "message" if wanted is True else wanted
        raise RequestError(
            f"cannot go on with a {part} of the assistant's: the last message does not end with one",
            kind="bad-field",
            details={"param": name},
        )
    return True


def message_fields(fields: Fields) -> Iterator[Fields]:
    """The messages of a request, OpenAI's or Anthropic's: one at least."""
    messages = fields.array("messages")
    if not messages:
        raise fields.wrong("messages", "an array of at least one message", messages)
    each = "an object with role and content"
    return fields.objects("messages", messages, MESSAGES_MAX, nouns="messages", each=each)


def _message(fields: Fields) -> Message:
    role = fields.text("role", "")
    if not role:
        raise fields.wrong("role", "a string", fields.raw("role"))
    calls = fields.array("tool_calls") or []
    parsed: Message = {"role": role, "content": _content(fields, optional=bool(calls))}
    # `reasoning` is what OpenRouter and vLLM call it.
    reasoning = fields.text("reasoning_content", "") or fields.text("reasoning", "")
    for name, text in (
        ("reasoning_content", reasoning),
        ("name", fields.text("name", "")),
        ("tool_call_id", fields.text("tool_call_id", "")),
    ):
        if text:
            parsed[name] = text
    if calls:
        parsed["tool_calls"] = [
            _call(fields.path(f"tool_calls[{index}]"), call) for index, call in enumerate(calls)
        ]
    return parsed


def _content(fields: Fields, *, optional: bool) -> str | list[dict[str, Any]]:
    """Text or parts. Only a message that calls tools may go without."""
    content = fields.raw("content")
    if isinstance(content, str):
        return content
    if content is None and optional:
        return ""
    if not isinstance(content, list):
        raise fields.wrong("content", "a string or an array of parts", content)
    return [text_part(fields.path(f"content[{index}]"), part) for index, part in enumerate(content)]


def text_part(where: str, part: object) -> dict[str, Any]:
    """A part of a content, which is a text; RequestError for any other kind."""
    if not isinstance(part, dict):
        raise wrong_field(where, "an object with type and text", part)
    kind = part.get("type")
    if kind != "text":
        raise unsupported(f"{where}.type", f"only text parts are supported, got {str(kind)[:40]!r}")
    if not isinstance(part.get("text"), str):
        raise wrong_field(f"{where}.text", "a string", part.get("text"))
    return {"type": "text", "text": part["text"]}


def _call(where: str, call: object) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise wrong_field(where, "an object with type and function", call)
    fields = Fields(call, where)
    kind = fields.text("type", "function")
    if kind != "function":
        raise unsupported(fields.path("type"), f"only calls of type 'function' are, got {kind[:40]!r}")
    function = fields.nested("function")
    name = function.text("name", "")
    if not name:
        raise function.wrong("name", "a string", function.raw("name"))
    parsed = {"type": "function", "function": {"name": name, "arguments": _arguments(function)}}
    id = fields.text("id", "")
    return parsed | {"id": id} if id else parsed


def _arguments(function: Fields) -> str:
    """JSON text of an object; some clients send the object itself, or nothing for a call without arguments."""
    value = function.raw("arguments")
    if value is None or value == "":
        return "{}"
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    try:
        parsed = msgspec.json.decode(value) if isinstance(value, str) else None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        parsed = None
    if not isinstance(parsed, dict):
        raise function.wrong("arguments", "the text of a JSON object", value)
    return str(value)


def _take_begun(messages: list[Message]) -> Message:
    """The begun answer, taken out; empty if there is none."""
    last = messages[-1]
    if last["role"] != "assistant":
        return {}
    if "tool_calls" in last:
        raise RequestError("cannot go on with an answer that calls tools: their results must follow it")
    messages.pop()
    if messages and messages[-1]["role"] == "assistant":
        raise RequestError("cannot go on with an answer: the last two messages are both the assistant's")
    if not messages:
        raise RequestError("cannot go on with an answer: there is no message before it")
    return last


def plain_text(content: str | list[dict[str, Any]], between: str = "\n") -> str:
    """Content as one text. llama-server joins parts by newlines, and those of a begun answer by empty lines."""
    if isinstance(content, str):
        return content
    return between.join(part["text"] for part in content)


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
