"""What some families' templates want of messages that trying does not find out (`traits`): other names and places.

A template is recognised by its text. llama.cpp does the same for the same templates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from llamad.api.conversation import Message

Refit = Callable[[list[Message]], list[Message]]


def refits(source: str) -> list[Refit]:
    """What is to be done with messages for the template of this text, in this order."""
    found: list[Refit] = []
    if "You have access to the following functions in JSONSchema format" in source:
        found.append(_each(_trimmed))
    if "<|channel|>" in source:
        found.append(_each(_as_harmony))
    if "[THINK]" in source and "'thinking'" in source:
        found.append(_each(_with_thought_part))
    if "List of tools: [" in source or "<|tool_list_start|>" in source:
        found.append(_each(_with_thinking))
    if "'<|tool_call>call:'" in source and "{#- OpenAI Chat Completions:" not in source:
        found.append(_with_responses)
    if "dsml_token" in source and "function_calls" not in source:
        found.append(_in_order_of_calls)
    return found


def _each(change: Callable[[Message], Message]) -> Refit:
    return lambda messages: [change(message) for message in messages]


def _trimmed(message: Message) -> Message:
    """StepFun's models think in circles where blanks are left at the ends of messages."""
    content = message["content"]
    if isinstance(content, str):
        content = content.strip()
    else:
        content = [part | {"text": part["text"].strip()} if "text" in part else part for part in content]
    thought = message.get("reasoning_content")
    return {**message, "content": content} | ({"reasoning_content": thought.strip()} if thought else {})


def _as_harmony(message: Message) -> Message:
    """Thoughts have another name there, and stand alone beside calls."""
    if "reasoning_content" not in message:
        return message
    fitting = {**message, "thinking": message["reasoning_content"]}
    if "tool_calls" in fitting:
        del fitting["content"]
    return fitting


def _with_thought_part(message: Message) -> Message:
    """Mistral's thinking templates take thoughts as parts of the content."""
    if message["role"] not in ("system", "assistant"):
        return message
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    if "reasoning_content" in message:
        parts.insert(0, {"type": "thinking", "thinking": message["reasoning_content"]})
    return {word: value for word, value in message.items() if word != "reasoning_content"} | {
        "content": parts
    }


def _with_thinking(message: Message) -> Message:
    """LFM2's name for a thought."""
    return (
        {**message, "thinking": message["reasoning_content"]} if "reasoning_content" in message else message
    )


def _with_responses(messages: list[Message]) -> list[Message]:
    """Gemma 4's first templates know no messages of tools: results, and the answer after them, belong to the calls."""
    fitting: list[Message] = []
    for message in messages:
        calling = fitting[-1] if fitting and "tool_calls" in fitting[-1] else None
        if calling is not None and message["role"] == "tool" and not calling.get("content"):
            calling.setdefault("tool_responses", []).append(_response(calling, message))
        elif calling is not None and _answers(message) and not calling.get("content"):
            calling["content"] = message["content"]
        elif "tool_calls" in message:
            fitting.append({word: value for word, value in message.items() if word != "content"})
        else:
            fitting.append(message)
    return fitting


def _answers(message: Message) -> bool:
    return message["role"] == "assistant" and "tool_calls" not in message and bool(message["content"])


def _response(calling: Message, result: Message) -> dict[str, Any]:
    index = len(calling.get("tool_responses", ()))
    calls = calling["tool_calls"]
    name = (
        calls[index]["function"]["name"]
        if index < len(calls)
        else str(result.get("tool_call_id") or "unknown")
    )
    return {"name": name, "response": _as_value(result["content"])}


def _as_value(content: Any) -> Any:
    try:
        return msgspec.json.decode(content) if isinstance(content, str) else content
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return content


def _in_order_of_calls(messages: list[Message]) -> list[Message]:
    """DeepSeek V4 shows results in the order of the calls, whatever order they come in."""
    fitting = list(messages)
    order: dict[str, int] = {}
    start = 0
    while start < len(fitting):
        end = start
        while end < len(fitting) and fitting[end]["role"] in ("user", "tool"):
            end += 1
        places = [at for at in range(start, end) if fitting[at]["role"] == "tool"]
        results = sorted((fitting[at] for at in places), key=lambda result: _place(result, order))
        for at, result in zip(places, results, strict=True):
            fitting[at] = result
        if end < len(fitting) and fitting[end].get("tool_calls"):
            order = {str(call.get("id")): index for index, call in enumerate(fitting[end]["tool_calls"])}
        start = end + 1
    return fitting


def _place(result: Message, order: dict[str, int]) -> int:
    return order.get(str(result.get("tool_call_id")), 0)


def fitted(messages: Sequence[Message], changes: Sequence[Refit]) -> list[Message]:
    """The messages after all of these changes."""
    fitting = list(messages)
    for change in changes:
        fitting = change(fitting)
    return fitting
