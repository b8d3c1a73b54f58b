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


def spell_out(messages: Sequence[Message], calls: Calls, *, results: bool = False) -> list[Message]:
    """Calls as what the assistant has said, and, unless the template shows them, `results` as what a user says.

    Results in a row are one message.
    """
    spelled: list[Message] = []
    for message in messages:
        content = plain_text(message["content"])
        if message["role"] == "tool" and not results:
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
        .replace("«arguments»", _arguments(calls, arguments))
        .replace("«pairs»", _pairs(calls, arguments))
        .replace("«n»", str(index))
        .replace("«id»", f"{index:09}")
        for index, (name, arguments) in enumerate(made)
    ]
    return calls.opens + calls.apart.join(texts) + calls.closes


def _arguments(calls: Calls, arguments: str) -> str:
    if calls.literals is None:
        return arguments
    return calls.literals.written(msgspec.json.decode(arguments))


def _pairs(calls: Calls, arguments: str) -> str:
    text, other, *_ = (*calls.kinds, "", "")
    return "".join(
        calls.pair.replace("«key»", key)
        .replace("«kind»", text if isinstance(value, str) else other)
        .replace("«value»", value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for key, value in msgspec.json.decode(arguments).items()
    )
