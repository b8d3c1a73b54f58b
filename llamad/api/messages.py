"""Anthropic's messages: the request, read into the same conversation as OpenAI's.

The fields that are Anthropic's own are read here, in its own terms, and stand in the places of OpenAI's; all others
(`temperature`, `top_k`, llama.cpp's) are read as in any chat. So a request rule on `max_tokens` or `stop` holds here,
too. `cache_control` may stand anywhere and asks for nothing: what a slot still holds of a prompt is always reused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llamad.api.conversation import Conversation, Message, message_fields, parse_conversation
from llamad.api.fields import Fields, wrong_field
from llamad.api.fragments import answered, called, joined, said, thought
from llamad.api.generation import Generation
from llamad.api.hosted import Offered, offered
from llamad.api.openai import ChatRequest, parse_chat
from llamad.api.sampling import Vocabulary
from llamad.api.unsupported import refuse_set, unsupported
from llamad.errors import RequestError

BUDGET_TOKENS_MAX = (1 << 31) - 1

_OWN = frozenset(
    (
        "system",
        "messages",
        "tools",
        "tool_choice",
        "stop_sequences",
        "thinking",
        "output_config",
        "output_format",
    )
)
_LENGTHS = ("max_tokens", "max_completion_tokens", "n_predict")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}

# Claude Code puts a stamp in front of its system prompt that is another one in each request: nothing behind it could
# ever be reused.
_STAMP = re.compile(r"(x-anthropic-billing-header:[^\n]*?\bcch=)[0-9a-f]{5}(?=;)")


_REFUSED = {
    "container": "nothing is run on this server",
    "mcp_servers": "this server calls no tools itself",
    **dict.fromkeys(
        (
            "logprobs",
            "top_logprobs",
            "n_probs",
            "timings_per_token",
            "return_progress",
            "return_tokens",
            "verbose",
            "response_fields",
        ),
        "there is no place for it in a message",
    ),
}


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """A parsed body of `/v1/messages`. `stops`: what the client calls stop sequences; `shows_thoughts`: with their text;
    `left_out`: see `hosted`."""

    chat: ChatRequest
    stops: tuple[str, ...] = ()
    shows_thoughts: bool = True
    left_out: tuple[str, ...] = ()


def parse_messages(document: dict[str, Any], defaults: Generation, vocabulary: Vocabulary) -> MessagesRequest:
    """Raises RequestError that names the field."""
    fields = Fields(document)
    refuse_set(fields, _REFUSED)
    _check_edits(fields.nested("context_management"))
    for name in ("n", "n_cmpl"):
        fields.integer(name, 1, 1, 1)
    if all(fields.raw(name) is None for name in _LENGTHS):
        raise fields.wrong("max_tokens", "a whole number of at least 1", None)
    tools = offered(fields, "custom", "custom")
    body = _as_chat(fields, document, tools)
    chat = parse_chat(body, defaults, vocabulary)
    return MessagesRequest(
        chat=chat,
        stops=chat.generation.stop if body.get("stop") is not None else (),
        shows_thoughts=fields.nested("thinking").text("display", "") != "omitted",
        left_out=tools.left_out,
    )


def _check_edits(management: Fields) -> None:
    """Nothing of a conversation is cleared here, so of the edits only those will do that clear nothing."""
    for index, edit in enumerate(management.array("edits") or []):
        if not (isinstance(edit, dict) and edit.get("keep") == "all"):
            raise unsupported(
                management.path(f"edits[{index}]"), "nothing of a conversation is cleared on this server"
            )


def parse_counted(document: dict[str, Any]) -> Conversation:
    """A body of `/v1/messages/count_tokens`: what a message would be answered to. Raises RequestError."""
    fields = Fields(document)
    return parse_conversation(Fields(_as_chat(fields, document, offered(fields, "custom", "custom"))))


def _as_chat(fields: Fields, document: dict[str, Any], tools: Offered) -> dict[str, Any]:
    """The body of a chat that asks for the same."""
    chat = {name: value for name, value in document.items() if name not in _OWN}
    chat["messages"] = joined(_fragments(fields), ("user", "assistant"))
    chat |= _tools(fields, tools) | _thinking(fields) | _output(fields)
    stops = fields.array("stop_sequences")
    if stops is not None:
        if not all(isinstance(stop, str) for stop in stops):
            raise fields.wrong("stop_sequences", "an array of strings", stops)
        chat["stop"] = stops
    return chat


# ---- messages


def _fragments(fields: Fields) -> Iterator[Message]:
    system = fields.raw("system")
    if system not in (None, "", []):
        yield said("system", *map(_unstamped, _texts(fields, "system")))
    for message in message_fields(fields):
        yield from _message(message)


def _message(fields: Fields) -> Iterator[Message]:
    role = fields.text("role", "")
    reader = {"user": _user_block, "assistant": _assistant_block, "system": _system_block}.get(role)
    if reader is None:
        raise fields.wrong("role", "'user', 'assistant' or 'system'", fields.raw("role"))
    content = fields.raw("content")
    if isinstance(content, str):
        yield said(role, content)
        return
    if not isinstance(content, list) or not content:
        raise fields.wrong("content", "a string or an array of at least one block", content)
    for index, block in enumerate(content):
        fragment = reader(_block(fields.path(f"content[{index}]"), block))
        if fragment is not None:
            yield fragment


def _block(where: str, block: object) -> Fields:
    if not isinstance(block, dict):
        raise wrong_field(where, "an object with a type", block)
    return Fields(block, where)


def _user_block(block: Fields) -> Message:
    if block.raw("type") == "tool_result":
        id = _required_text(block, "tool_use_id")
        return answered(id, *_texts(block, "content", optional=True))
    return said("user", _text(block))


def _system_block(block: Fields) -> Message:
    return said("system", _text(block))


def _assistant_block(block: Fields) -> Message | None:
    match block.raw("type"):
        case "thinking":
            return thought(block.text("thinking", ""))
        case "redacted_thinking":
            # Nobody here can read it.
            return None
        case "tool_use":
            arguments = block.raw("input")
            if arguments is not None and not isinstance(arguments, dict):
                raise block.wrong("input", "an object", arguments)
            return called(_required_text(block, "id"), _required_text(block, "name"), arguments or {})
    return said("assistant", _text(block))


def _texts(fields: Fields, name: str, *, optional: bool = False) -> list[str]:
    """A text, or those of an array of text blocks."""
    value = fields.raw(name)
    if isinstance(value, str):
        return [value]
    if value is None and optional:
        return []
    if not isinstance(value, list):
        raise fields.wrong(name, "a string or an array of text blocks", value)
    return [_text(_block(fields.path(f"{name}[{index}]"), block)) for index, block in enumerate(value)]


def _text(block: Fields) -> str:
    kind = block.raw("type")
    if kind != "text":
        raise unsupported(block.path("type"), f"this model reads text only, got {str(kind)[:40]!r}")
    text = block.raw("text")
    if not isinstance(text, str):
        raise block.wrong("text", "a string", text)
    return text


def _required_text(fields: Fields, name: str) -> str:
    text = fields.text(name, "")
    if not text:
        raise fields.wrong(name, "a string", fields.raw(name))
    return text


def _unstamped(text: str) -> str:
    return (
        _STAMP.sub(r"\g<1>00000", text, count=1) if text.startswith("x-anthropic-billing-header:") else text
    )


# ---- tools


def _tools(fields: Fields, tools: Offered) -> dict[str, Any]:
    functions = [_tool(tool) for tool in tools.functions]
    return ({"tools": functions} if functions else {}) | _tool_choice(fields, tools)


def _tool(fields: Fields) -> dict[str, Any]:
    schema = fields.raw("input_schema")
    if not isinstance(schema, dict):
        raise fields.wrong("input_schema", "a JSON schema, which is an object", schema)
    function = {
        "name": _required_text(fields, "name"),
        "description": fields.text("description", ""),
        "parameters": schema,
    }
    return {"type": "function", "function": function}


def _tool_choice(fields: Fields, tools: Offered) -> dict[str, Any]:
    if fields.raw("tool_choice") is None:
        return {}
    choice = fields.nested("tool_choice")
    kind = choice.text("type", "")
    if kind == "tool":
        name = _required_text(choice, "name")
        if all(tool.raw("name") != name for tool in tools.functions):
            tools.refuse(choice.path("name"), name)
            raise RequestError(
                f"cannot call {name[:80]!r}: it is not among the request's tools",
                kind="bad-field",
                details={"param": choice.path("name")},
            )
        chosen: Any = {"type": "function", "function": {"name": name}}
    elif kind in _CHOICES:
        if kind == "any" and not tools.functions:
            tools.refuse("tool_choice", *tools.left_out)
        chosen = _CHOICES[kind]
    else:
        raise choice.wrong("type", "'auto', 'any', 'tool' or 'none'", choice.raw("type"))
    chat: dict[str, Any] = {"tool_choice": chosen}
    if choice.flag("disable_parallel_tool_use", False):
        chat["parallel_tool_calls"] = False
    return chat


# ---- thoughts and form


def _thinking(fields: Fields) -> dict[str, Any]:
    """Templates that know of thoughts read `enable_thinking`; without the field it is theirs to say."""
    if fields.raw("thinking") is None:
        return {}
    thinking = fields.nested("thinking")
    kind = thinking.text("type", "")
    if kind not in ("enabled", "disabled", "adaptive"):
        raise thinking.wrong("type", "'enabled', 'disabled' or 'adaptive'", thinking.raw("type"))
    if kind == "adaptive":
        return {}
    variables = fields.nested("chat_template_kwargs")
    chat: dict[str, Any] = {
        "chat_template_kwargs": {"enable_thinking": kind == "enabled"}
        | {name: variables.raw(name) for name in variables.names()}
    }
    if kind == "enabled" and thinking.raw("budget_tokens") is not None:
        chat["reasoning_budget_tokens"] = thinking.integer("budget_tokens", 0, 1, BUDGET_TOKENS_MAX)
    return chat


def _output(fields: Fields) -> dict[str, Any]:
    """`output_config`: how hard to think, and the form of the answer (`output_format` before)."""
    config = fields.nested("output_config")
    chat: dict[str, Any] = {}
    effort = config.text("effort", "")
    if effort:
        chat["reasoning_effort"] = effort
    form = config.nested("format") if config.raw("format") is not None else fields.nested("output_format")
    if form.names():
        kind = form.text("type", "")
        if kind != "json_schema":
            raise form.wrong("type", "'json_schema'", form.raw("type"))
        chat["response_format"] = {"type": "json_schema", "json_schema": {"schema": form.raw("schema")}}
    return chat
