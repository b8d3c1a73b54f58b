"""What one template can do with a conversation, found out by trying, and conversations made fit for it.

Templates differ in what they take: content as text or in parts, arguments as text or as objects, system messages or none.
llama.cpp finds these differences out the same way, and bridges them in the same order; a prompt is equal to its.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from llamad.api.conversation import Message, plain_text, with_part_content, with_plain_content
from llamad.api.refits import fitted, refits
from llamad.errors import RequestError

Render = Callable[[Sequence[Message], list[dict[str, Any]], dict[str, Any]], str]
"""Messages, tools and variables to a prompt; raises RequestError where the template refuses them."""

_NEEDLE = "llamadneedle"
_THOUGHT = "llamadthought"
# What templates call it to drop the thoughts of earlier answers.
_FORGETTING = ("clear_thinking", "truncate_history_thinking", "drop_thinking")
_USER: Message = {"role": "user", "content": "hi"}


def keeping_thoughts(keep: bool) -> dict[str, bool]:
    """Whether thoughts of earlier answers stay in the prompt, in all the words that templates have for it."""
    return {"preserve_thinking": keep} | dict.fromkeys(_FORGETTING, not keep)


class Traits:
    """The traits of one template. `source`: its text.

    `tells_tools`: it tells the model what tools there are. `tells_calls`: it shows the calls that were made, and
    `tells_several`: also where a message makes several. `tells_results`: it shows what tools have answered.
    """

    def __init__(self, render: Render, source: str) -> None:
        self._render = render
        self._form = self._content_form()
        self._harmony = "<|channel|>" in source
        self._refits = refits(source)
        self._takes_system = self._shows([{"role": "system", "content": _NEEDLE}, _USER], _NEEDLE)
        self._takes_objects = self._takes_arguments({_NEEDLE: "x"})
        self.tells_calls = self._takes_objects or self._takes_arguments(f'{{"{_NEEDLE}": "x"}}')
        self.tells_several = self.tells_calls and self._shows(self._several(), _THOUGHT)
        self.tells_results = self._shows(self._exchange(None, result=_NEEDLE), _NEEDLE)
        self.tells_tools = self._shows([_USER], _NEEDLE, tools=[_tool(_NEEDLE)])
        self._tells_effort = "reasoning_effort" in source

    def fit(self, messages: Sequence[Message]) -> list[Message]:
        """The messages in the form that this template takes. Raises RequestError where there is none."""
        fitting = [self._form(message) for message in messages]
        if not self._harmony:
            fitting = [_as_system(message) for message in fitting]
        if not self._takes_system:
            fitting = _without_system(fitting)
        if self._takes_objects:
            fitting = [_with_objects(message) for message in fitting]
        return fitted(fitting, self._refits)

    def capabilities(self) -> dict[str, bool]:
        """llama-server's `chat_template_caps`."""
        thought: Message = {"role": "assistant", "content": "answer", "reasoning_content": _THOUGHT}
        keeping = {"enable_thinking": True, **keeping_thoughts(True)}
        return {
            "supports_object_arguments": self._takes_objects,
            "supports_parallel_tool_calls": self.tells_several,
            "supports_preserve_reasoning": self._shows([_USER, thought, _USER], _THOUGHT, variables=keeping),
            "supports_reasoning_effort": self._tells_effort,
            "supports_string_content": self._form is not with_part_content,
            "supports_system_role": self._takes_system,
            "supports_tool_calls": self.tells_calls,
            "supports_tools": self.tells_tools,
            "supports_typed_content": self._form is not with_plain_content,
        }

    def thought_frame(self, opens: str, closes: str) -> tuple[str, str]:
        """What this template writes before a thought of the assistant, from its mark on, and between it and the answer."""
        answer: Message = {"role": "assistant", "content": _NEEDLE, "reasoning_content": _THOUGHT}
        try:
            text = self._render(self.fit([_USER, answer]), [], {})
        except RequestError:
            return opens, closes
        before, thought, after = text.partition(_THOUGHT)
        between, content, _ = after.partition(_NEEDLE)
        if not thought or not content or opens not in before or closes not in between:
            return opens, closes
        return before[before.rindex(opens) :], between

    def _content_form(self) -> Callable[[Message], Message]:
        """Whether this template reads content as text, as parts, or both."""
        takes_text = self._shows([{"role": "user", "content": _NEEDLE}], _NEEDLE)
        takes_parts = self._shows(
            [{"role": "user", "content": [{"type": "text", "text": _NEEDLE}]}], _NEEDLE, quoted=False
        )
        if not takes_parts:
            return with_plain_content
        return dict if takes_text else with_part_content

    def _takes_arguments(self, arguments: Any) -> bool:
        """Do these show as what they are? As an object that Python has printed they do not."""
        shown = self._exchange(arguments)
        return self._shows(shown, _NEEDLE) and not self._shows(shown, f"'{_NEEDLE}'")

    def _several(self) -> list[Message]:
        messages = self._exchange({"arg": "x"} if self._takes_objects else '{"arg": "x"}')
        (call,) = messages[1]["tool_calls"]
        second = {**call, "id": "call00002", "function": {**call["function"], "name": _THOUGHT}}
        messages[1] = {**messages[1], "tool_calls": [call, second]}
        return messages

    def _exchange(self, arguments: Any, result: str = "result") -> list[Message]:
        """A call and what came of it; without arguments, a call in words."""
        function = {"name": "tool", "arguments": arguments}
        call = {"id": "call00001", "type": "function", "function": function}
        calling: Message = {"role": "assistant", "content": "", "tool_calls": [call]}
        messages = [
            _USER,
            calling if arguments is not None else {"role": "assistant", "content": "tool"},
            {"role": "tool", "content": result, "tool_call_id": "call00001"},
            {"role": "assistant", "content": "done"},
            _USER,
        ]
        return [self._form(message) for message in messages]

    def _shows(
        self,
        messages: Sequence[Message],
        *needles: str,
        quoted: bool = True,
        tools: Sequence[dict[str, Any]] = (),
        variables: dict[str, Any] | None = None,
    ) -> bool:
        try:
            text = self._render(messages, list(tools), variables or {})
        except RequestError:
            return False
        if not quoted and any(f"{mark}{needle}{mark}" in text for mark in "'\"" for needle in needles):
            return False
        return any(needle in text for needle in needles)


def _tool(name: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {"arg": {"type": "string", "description": "x"}},
        "required": ["arg"],
    }
    return {"type": "function", "function": {"name": name, "description": "x", "parameters": parameters}}


def _as_system(message: Message) -> Message:
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _without_system(messages: list[Message]) -> list[Message]:
    """A first message of the system becomes the head of the next one."""
    if not messages or messages[0]["role"] != "system":
        return messages
    first, *others = messages
    if not others:
        return []
    content = plain_text(first["content"]) + "\n" + plain_text(others[0]["content"])
    return [{**others[0], "content": content}, *others[1:]]


def _with_objects(message: Message) -> Message:
    if "tool_calls" not in message:
        return message
    calls = []
    for call in message["tool_calls"]:
        function = call["function"]
        arguments = msgspec.json.decode(function["arguments"])
        calls.append({**call, "function": {**function, "arguments": arguments}})
    return {**message, "tool_calls": calls}
