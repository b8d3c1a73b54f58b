"""Messages from fragments: dialects that have items and blocks where OpenAI's chats have messages.

A block (a text, a thought, a call) becomes a fragment, a message of its own with one thing in it; fragments of the same
role that follow each other are one message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from llamad.api.conversation import Message


def said(role: str, *texts: str) -> Message:
    """What somebody says, in one part or several."""
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def thought(text: str) -> Message:
    """What the assistant thinks before it answers."""
    return {"role": "assistant", "content": [], "reasoning_content": text}


def called(id: str, name: str, arguments: Any) -> Message:
    """A tool that the assistant calls. `arguments`: an object, or its JSON text."""
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": [], "tool_calls": [call]}


def answered(id: str, *texts: str) -> Message:
    """What a tool has answered to the call of this id."""
    return {**said("tool", *texts), "tool_call_id": id}


def joined(fragments: Iterable[Message], roles: Collection[str]) -> list[Message]:
    """The messages that they make. Neighbours of one of `roles` are put together; a message of one text has just that."""
    messages: list[Message] = []
    for fragment in fragments:
        role = fragment["role"]
        if messages and role in roles and role == messages[-1]["role"]:
            messages[-1] = _together(messages[-1], fragment)
        else:
            messages.append(fragment)
    return [{**message, "content": _plain(message["content"])} for message in messages]


def _together(first: Message, second: Message) -> Message:
    """Texts and calls follow each other, and thoughts are one thought."""
    return first | {
        name: first[name] + second[name] if name in first else second[name] for name in _parts(second)
    }


def _parts(message: Message) -> list[str]:
    return [name for name in message if name != "role"]


def _plain(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if len(parts) > 1:
        return parts
    return str(parts[0]["text"]) if parts else ""
