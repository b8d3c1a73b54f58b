"""Tools in words, for templates that know none: what the model may call and how, and calls and results as messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from llamad.api.conversation import Message, plain_text
from llamad.api.notation import Calls

_INTRODUCTION = """You can call these functions. Each line describes one; its parameters are a JSON schema.

<functions>
{functions}
</functions>

To call a function, write its name and a JSON object of arguments like this, and nothing after it:

{call}

You will be told what it returns. Do not call a function where you can answer without."""


def describe(messages: Sequence[Message], tools: Sequence[dict[str, Any]], calls: Calls) -> list[Message]:
    """The messages with a description of the tools at the end of the system's, which is made if there is none."""
    functions = "\n".join(msgspec.json.encode(tool["function"]).decode() for tool in tools)
    call = written(calls, [("FUNCTION", '{"PARAMETER": "VALUE"}')])
    text = _INTRODUCTION.format(functions=functions, call=call)
    if messages and messages[0]["role"] in ("system", "developer"):
        first, *others = messages
        return [{**first, "content": plain_text(first["content"]) + "\n\n" + text}, *others]
    return [{"role": "system", "content": text}, *messages]


def spell_out(messages: Sequence[Message], calls: Calls) -> list[Message]:
    """Calls as what the assistant has said, results as what a user says; results in a row are one message."""
    spelled: list[Message] = []
    for message in messages:
        content = plain_text(message["content"])
        if message["role"] == "tool":
            result = f"<tool_response>\n{content}\n</tool_response>"
            if spelled and spelled[-1].get("results"):
                spelled[-1]["content"] += "\n" + result
            else:
                spelled.append({"role": "user", "content": result, "results": True})
        elif "tool_calls" in message:
            made = [
                (call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]
            ]
            text = "\n".join(filter(None, (content, written(calls, made))))
            spelled.append({"role": message["role"], "content": text})
        else:
            spelled.append(message)
    return [{word: value for word, value in message.items() if word != "results"} for message in spelled]


def written(calls: Calls, made: Sequence[tuple[str, str]]) -> str:
    """Calls (name and arguments) as the family writes them."""
    texts = [
        calls.call.replace("«name»", name)
        .replace("«arguments»", arguments)
        .replace("«n»", str(index))
        .replace("«id»", f"{index:09}")
        for index, (name, arguments) in enumerate(made)
    ]
    return calls.opens + calls.apart.join(texts) + calls.closes
