"""OpenAI's responses: the request, read into the same conversation as a chat's.

Nothing is kept between requests, so each brings the whole conversation as `input`: messages, thoughts, calls and their
outputs, which here are fragments of messages (`fragments`). What is not of the responses alone (`temperature`,
llama.cpp's fields) is read as in any chat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llamad.api.conversation import MESSAGES_MAX, Conversation, Message, parse_conversation
from llamad.api.fields import Fields, wrong_field
from llamad.api.fragments import answered, called, joined, said, thought
from llamad.api.generation import Generation
from llamad.api.hosted import Offered, offered, still_allowed
from llamad.api.openai import ChatRequest, parse_chat
from llamad.api.sampling import Vocabulary
from llamad.api.unsupported import refuse_set, unsupported

_STATELESS = "nothing is kept here between requests; send the whole conversation as 'input'"
_NO_PLACE = "there is no place for it in a response"
_REFUSED = {
    "previous_response_id": _STATELESS,
    "conversation": _STATELESS,
    "store": "responses are not stored here; leave it out, or send false",
    "background": "a response ends with its request; an X-Conversation-Id lets it go on without its client",
    "prompt": "there are no stored prompts on this server",
    "context_management": "nothing of a conversation is cut or summed up here",
    "max_tool_calls": "this server calls no tools itself",
    "moderation": "there is none on this server",
    **dict.fromkeys(
        (
            "logprobs",
            "top_logprobs",
            "n_probs",
            "return_tokens",
            "verbose",
            "response_fields",
        ),
        _NO_PLACE,
    ),
}
# Thoughts are in the open here, so who wants them encrypted to send them back lacks nothing.
_INCLUDABLE = ("reasoning.encrypted_content",)
_OWN = frozenset(("input", "instructions", "tools", "tool_choice", "max_output_tokens", "text", "reasoning"))
_ECHOED = ("instructions", "max_output_tokens", "prompt_cache_key", "safety_identifier", "user")


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A parsed body of `/v1/responses`. `echo`: what a response says of its request; `left_out`: see `hosted`."""

    chat: ChatRequest
    echo: dict[str, Any]
    left_out: tuple[str, ...] = ()


def parse_responses(
    document: dict[str, Any], defaults: Generation, vocabulary: Vocabulary
) -> ResponsesRequest:
    """Raises RequestError that names the field."""
    fields = Fields(document)
    _refuse(fields)
    tools = offered(fields, "function")
    chat = parse_chat(_as_chat(fields, document, tools), defaults, vocabulary)
    return ResponsesRequest(chat, _echo(fields, chat, tools), tools.left_out)


def parse_counted(document: dict[str, Any]) -> Conversation:
    """A body of `/v1/responses/input_tokens`: what would be responded to. Raises RequestError."""
    fields = Fields(document)
    return parse_conversation(Fields(_as_chat(fields, document, offered(fields, "function"))))


def _refuse(fields: Fields) -> None:
    refuse_set(fields, _REFUSED)
    for name in ("n", "n_cmpl"):
        fields.integer(name, 1, 1, 1)
    if fields.text("truncation", "disabled") != "disabled":
        raise unsupported("truncation", "input that does not fit is refused, never cut")
    for index, wanted in enumerate(fields.array("include") or []):
        if wanted not in _INCLUDABLE:
            raise unsupported(fields.path(f"include[{index}]"), "there is nothing of that kind to include")


def _as_chat(fields: Fields, document: dict[str, Any], tools: Offered) -> dict[str, Any]:
    """The body of a chat that asks for the same."""
    chat = {name: value for name, value in document.items() if name not in _OWN}
    chat["messages"] = joined(_fragments(fields), ("assistant",))
    chat |= _tools(fields, tools) | _text(fields) | _reasoning(fields)
    if fields.raw("max_output_tokens") is not None:
        chat["max_tokens"] = fields.integer("max_output_tokens", -1, -1, (1 << 31) - 1)
    return chat


# ---- input


def _fragments(fields: Fields) -> Iterator[Message]:
    instructions = fields.text("instructions", "")
    if instructions:
        yield said("system", instructions)
    items = fields.raw("input")
    if isinstance(items, str):
        yield said("user", items)
        return
    if not isinstance(items, list) or not items:
        raise fields.wrong("input", "a string or an array of at least one item", items)
    for item in fields.objects("input", items, MESSAGES_MAX, nouns="items", each="an object"):
        yield from _item(item)


def _item(item: Fields) -> Iterator[Message]:
    kind = item.text("type", "message")
    match kind:
        case "message":
            yield _message(item)
        case "function_call":
            arguments = item.text("arguments", "")
            yield called(_required(item, "call_id"), _required(item, "name"), arguments)
        case "function_call_output":
            yield answered(_required(item, "call_id"), *_texts(item, "output", ("input_text",)))
        case "reasoning":
            text = _thought(item)
            if text:
                yield thought(text)
        case "item_reference":
            raise unsupported(item.path("type"), _STATELESS)
        case _:
            raise unsupported(item.path("type"), f"this server has no items of type {kind[:40]!r}")


def _message(item: Fields) -> Message:
    role = item.text("role", "")
    if role == "assistant":
        return said(role, *_texts(item, "content", ("output_text", "input_text", "refusal")))
    if role not in ("user", "system", "developer"):
        raise item.wrong("role", "'user', 'assistant', 'system' or 'developer'", item.raw("role"))
    # Few templates know of developers, and those that do take the system for one.
    return said("system" if role == "developer" else role, *_texts(item, "content", ("input_text",)))


def _texts(fields: Fields, name: str, kinds: tuple[str, ...]) -> list[str]:
    """A text, or those of an array of parts of these kinds."""
    value = fields.raw(name)
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise fields.wrong(name, "a string or an array of parts", value)
    return [_part(fields.path(f"{name}[{index}]"), part, kinds) for index, part in enumerate(value)]


def _part(where: str, part: object, kinds: tuple[str, ...]) -> str:
    if not isinstance(part, dict):
        raise wrong_field(where, "an object with a type", part)
    kind = part.get("type")
    if kind not in kinds and kind != "text":
        raise unsupported(f"{where}.type", f"this model reads text only, got {str(kind)[:40]!r}")
    name = "refusal" if kind == "refusal" else "text"
    if not isinstance(part.get(name), str):
        raise wrong_field(f"{where}.{name}", "a string", part.get(name))
    return str(part[name])


def _thought(item: Fields) -> str:
    """Its content, else its summary; what is only there encrypted nobody here can read."""
    for name, kind in (("content", "reasoning_text"), ("summary", "summary_text")):
        if item.raw(name):
            return "\n".join(_texts(item, name, (kind,)))
    return ""


def _required(fields: Fields, name: str) -> str:
    text = fields.text(name, "")
    if not text:
        raise fields.wrong(name, "a string", fields.raw(name))
    return text


# ---- tools, form, effort


def _tools(fields: Fields, tools: Offered) -> dict[str, Any]:
    functions = []
    for tool in tools.functions:
        _required(tool, "name")
        functions.append({"type": "function", "function": tool.document})
    chat: dict[str, Any] = {"tools": functions} if functions else {}
    choice = fields.raw("tool_choice")
    if isinstance(choice, dict):
        choice = _named_choice(fields.nested("tool_choice"), choice, tools)
    elif choice == "required" and not functions:
        tools.refuse("tool_choice", *tools.left_out)
    return chat if choice is None else chat | {"tool_choice": choice}


def _named_choice(fields: Fields, choice: dict[str, Any], tools: Offered) -> dict[str, Any]:
    """A choice of certain tools, in the form of chats."""
    if choice.get("type") != "allowed_tools":
        tools.refuse("tool_choice", str(choice.get("type")))
        return choice
    allowed = fields.array("tools") or []
    functions = still_allowed(allowed, tools.left_out)
    if allowed and not functions:
        tools.refuse(fields.path("tools"), *tools.left_out)
    return {"type": "allowed_tools", "allowed_tools": {**choice, "tools": functions}}


def _text(fields: Fields) -> dict[str, Any]:
    """The form of the answer. How wordy it is to be is up to the model."""
    text = fields.nested("text")
    text.text("verbosity", "")
    form = text.nested("format")
    kind = form.text("type", "text")
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": kind}}
    if kind != "json_schema":
        raise form.wrong("type", "'text', 'json_object' or 'json_schema'", kind)
    if not isinstance(form.raw("schema"), dict):
        raise form.wrong("schema", "a JSON schema, which is an object", form.raw("schema"))
    return {"response_format": {"type": kind, "json_schema": {"schema": form.raw("schema")}}}


def _reasoning(fields: Fields) -> dict[str, Any]:
    """How hard to think. Thoughts are told as they are, so a summary is not needed."""
    effort = fields.nested("reasoning").text("effort", "")
    return {"reasoning_effort": effort} if effort else {}


# ---- what a response says of its request


def _echo(fields: Fields, chat: ChatRequest, tools: Offered) -> dict[str, Any]:
    reasoning, sampling = fields.nested("reasoning"), chat.generation.sampling
    return {
        "background": False,
        **{name: fields.raw(name) for name in _ECHOED},
        "metadata": _metadata(fields),
        "parallel_tool_calls": fields.flag("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": {"effort": reasoning.raw("effort"), "summary": None},
        "store": False,
        "temperature": sampling.temperature,
        "text": {"format": {"type": "text"}} | (fields.raw("text") or {}),
        "tool_choice": "auto" if fields.raw("tool_choice") is None else fields.raw("tool_choice"),
        "tools": [tool.document for tool in tools.functions],
        "top_p": sampling.top_p,
        "truncation": "disabled",
    }


def _metadata(fields: Fields) -> dict[str, str]:
    metadata = fields.nested("metadata")
    return {name: metadata.text(name, "") for name in metadata.names()}
