"""Conversations of every kind, as request bodies, for comparing prompts."""

from __future__ import annotations

from typing import Any

_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather of a <city>, "now" & later – naïvely\n',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Its name"},
                "days": {"type": "integer", "minimum": 1, "default": 1},
                "unit": {"type": "string", "enum": ["°C", "°F"]},
            },
            "required": ["city"],
        },
    },
}
_NOW = {
    "type": "function",
    "function": {
        "name": "now",
        "description": "The time",
        "parameters": {"type": "object", "properties": {}},
    },
}
_TOOLS = [_WEATHER, _NOW]
_SYSTEM = {"role": "system", "content": "Be brief."}
_ASK = {"role": "user", "content": "How is the weather in Rome?"}
_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "callabc01",
            "type": "function",
            "function": {
                "name": "get_weather",
                "arguments": '{"city": "Rome – \\"città\\" <b>", "days": 2, "exact": 1.5, "deep": {"a": [1, true, null]}}',
            },
        }
    ],
}
_RESULT = {
    "role": "tool",
    "tool_call_id": "callabc01",
    "name": "get_weather",
    "content": '{"sky": "clear", "t": 22}',
}
_BOTH = {
    "role": "assistant",
    "content": "I look.",
    "tool_calls": [
        _CALL["tool_calls"][0],  # type: ignore[index]
        {"id": "callabc02", "type": "function", "function": {"name": "now", "arguments": "{}"}},
    ],
}
_TIME = {"role": "tool", "tool_call_id": "callabc02", "name": "now", "content": "noon"}
_THOUGHTFUL = {"role": "assistant", "content": "Hello!", "reasoning_content": "A greeting.\nI greet back."}

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "a question": {"messages": [_ASK]},
    "with a system message": {"messages": [_SYSTEM, _ASK]},
    "several turns": {
        "messages": [
            _SYSTEM,
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": "  Two\nlines, üñï 🦊  "},
        ]
    },
    "content in parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]}
        ]
    },
    "a developer's message": {"messages": [{"role": "developer", "content": "Be kind."}, _ASK]},
    "tools": {"messages": [_ASK], "tools": _TOOLS},
    "tools and a system message": {"messages": [_SYSTEM, _ASK], "tools": _TOOLS},
    "tools that must not be called": {"messages": [_ASK], "tools": _TOOLS, "tool_choice": "none"},
    "a call and its result": {"messages": [_ASK, _CALL, _RESULT], "tools": _TOOLS},
    "a call, its result and an answer": {
        "messages": [
            _SYSTEM,
            _ASK,
            _CALL,
            _RESULT,
            {"role": "assistant", "content": "It is clear."},
            {"role": "user", "content": "Thanks."},
        ],
        "tools": _TOOLS,
    },
    "a call without tools": {"messages": [_ASK, _CALL, _RESULT]},
    "two calls at once": {"messages": [_ASK, _BOTH, _RESULT, _TIME], "tools": _TOOLS},
    "a thought before": {
        "messages": [{"role": "user", "content": "Hi"}, _THOUGHTFUL, {"role": "user", "content": "Bye"}]
    },
    "a thought and a call": {
        "messages": [_ASK, {**_CALL, "reasoning_content": "I need the weather."}, _RESULT],
        "tools": _TOOLS,
    },
    "a begun answer": {"messages": [_ASK, {"role": "assistant", "content": "The weather in Rome"}]},
    "a begun answer after a thought": {
        "messages": [
            _ASK,
            {"role": "assistant", "content": "It is", "reasoning_content": "Rome is warm."},
        ]
    },
    "no thinking": {"messages": [_ASK], "chat_template_kwargs": {"enable_thinking": False}},
    "thinking": {"messages": [_ASK], "chat_template_kwargs": {"enable_thinking": True}},
    "no generation prompt": {"messages": [_SYSTEM, _ASK], "add_generation_prompt": False},
    "an effort": {"messages": [_ASK], "reasoning_effort": "low"},
    "no effort": {"messages": [_ASK], "reasoning_effort": "none"},
    "two users in a row": {"messages": [_ASK, _ASK]},
    "a result without a call": {"messages": [_ASK, _RESULT]},
    "a late system message": {"messages": [_ASK, {"role": "assistant", "content": "Fine."}, _SYSTEM, _ASK]},
    "empty content": {"messages": [{"role": "user", "content": ""}]},
}  # fmt: skip
