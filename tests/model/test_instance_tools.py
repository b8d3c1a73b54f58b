"""Tools and thoughts in a real instance: SmolLM2, which is weak, calls when it must, by its rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.model.test_instance_serving import Instance, loaded

pytestmark = pytest.mark.model

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "of a city", "parameters": CITY},
}
NOW = {"type": "function", "function": {"name": "now", "description": "The time"}}
ASK = {
    "messages": [{"role": "user", "content": "How is the weather in Rome?"}],
    "tools": [WEATHER, NOW],
    "temperature": 0,
    "max_tokens": 120,
}
# What stands in the comment says of which family it is.
PLAIN = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{# SIGNS #}"""


@pytest.fixture(scope="module")
def tiny(smollm2: Path) -> Iterator[Instance]:
    with loaded(smollm2, {"ctx-size": 2048, "parallel": 2}) as instance:
        yield instance


def calls_of(events: list[Any]) -> list[dict[str, Any]]:
    """Calls put together from a stream as OpenAI's clients do it, by their index."""
    calls: dict[int, dict[str, Any]] = {}
    for event in events:
        for choice in event["choices"] if event != "[DONE]" else []:
            for part in choice["delta"].get("tool_calls", []):
                call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += part.get("id", "")
                call["name"] += part["function"].get("name", "")
                call["arguments"] += part["function"]["arguments"]
    return [calls[index] for index in sorted(calls)]


def test_a_required_call_conforms_whole_and_streamed(tiny: Instance) -> None:
    body = ASK | {"tool_choice": "required"}
    (choice,) = tiny.post("/v1/chat/completions", body)["choices"]
    message = choice["message"]
    (call,) = message["tool_calls"]
    assert (choice["finish_reason"], message["content"], call["type"]) == ("tool_calls", None, "function")
    if call["function"]["name"] == "get_weather":
        jsonschema.validate(json.loads(call["function"]["arguments"]), CITY)
    events = tiny.stream("/v1/chat/completions", body)
    (streamed,) = calls_of(events)
    assert {**call["function"], "id": len(call["id"])} == {
        "name": streamed["name"],
        "arguments": streamed["arguments"],
        "id": len(streamed["id"]),
    }
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_named_function_is_called_once(tiny: Instance) -> None:
    named = {"type": "function", "function": {"name": "now"}}
    (choice,) = tiny.post("/v1/chat/completions", ASK | {"tool_choice": named})["choices"]
    ((name, arguments),) = [
        (call["function"]["name"], call["function"]["arguments"]) for call in choice["message"]["tool_calls"]
    ]
    assert (name, json.loads(arguments)) == ("now", {})


def test_several_calls_where_they_may_be(tiny: Instance) -> None:
    body = ASK | {"tool_choice": "required", "parallel_tool_calls": True}
    message = tiny.post("/v1/chat/completions", body)["choices"][0]["message"]
    assert len(message["tool_calls"]) > 1
    assert len({call["id"] for call in message["tool_calls"]}) == len(message["tool_calls"])


def test_free_to_choose_it_may_answer_in_words(tiny: Instance) -> None:
    body = ASK | {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 20}
    with_tools = tiny.post("/v1/chat/completions", body)["choices"][0]
    assert with_tools["message"]["content"]
    assert "tool_calls" not in with_tools["message"]


def test_rules_do_not_touch_free_text(tiny: Instance) -> None:
    """The same words with a tool and without one that could be called: the rules let all of them through."""
    body = ASK | {"max_tokens": 30}
    free = tiny.post("/v1/chat/completions", body | {"tool_choice": "none"})["choices"][0]["message"]
    ruled = tiny.post("/v1/chat/completions", body)["choices"][0]["message"]
    assert ruled["content"] == free["content"]


def test_a_result_is_answered(tiny: Instance) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages = [
        *ASK["messages"],  # type: ignore[misc]
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    ]
    message = tiny.post("/v1/chat/completions", ASK | {"messages": messages, "max_tokens": 16})["choices"][0][
        "message"
    ]
    assert message["role"] == "assistant"


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_cannot_be_honoured_is_a_bad_request(tiny: Instance, stream: bool) -> None:
    parameters = {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}, "required": ["x"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    error = tiny.post("/v1/chat/completions", ASK | {"tools": [tool], "stream": stream}, 400)["error"]
    assert (error["kind"], error["param"]) == ("unsupported-schema", "tools")


def test_a_call_or_an_answer_by_a_schema(tiny: Instance) -> None:
    schema = {"type": "object", "properties": {"sky": {"enum": ["clear", "grey"]}}, "required": ["sky"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "sky", "schema": schema}}
    message = tiny.post("/v1/chat/completions", ASK | {"response_format": wanted})["choices"][0]["message"]
    if not message.get("tool_calls"):
        jsonschema.validate(json.loads(message["content"]), schema)


def test_a_thinking_template(smollm2: Path) -> None:
    template = PLAIN.replace("SIGNS", "</think>") + "<think>"
    options = {"ctx-size": 1024, "parallel": 1, "chat-template": template}
    with loaded(smollm2, options) as instance:
        body = {"messages": ASK["messages"], "temperature": 0, "max_tokens": 12}
        message = instance.post("/v1/chat/completions", body)["choices"][0]["message"]
        assert message["reasoning_content"]
        assert message["content"] == ""
        inline = instance.post("/v1/chat/completions", body | {"reasoning_format": "none"})["choices"][0][
            "message"
        ]
        assert inline == {"role": "assistant", "content": "<think>" + message["reasoning_content"]}
        bounded = {"reasoning_budget_tokens": 5, "reasoning_budget_message": " Enough.", "max_tokens": 30}
        short = instance.post("/v1/chat/completions", body | bounded)["choices"][0]["message"]
        assert short["reasoning_content"].endswith(" Enough.")
        assert short["content"]
        wanted = {"response_format": {"type": "json_object"}, "reasoning_budget_tokens": 0, "max_tokens": 60}
        answer = instance.post("/v1/chat/completions", body | wanted)["choices"][0]["message"]
        assert "reasoning_content" not in answer
        assert answer["content"].startswith("{")


FEW = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Rome", "Oslo"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
}
SHORT = {
    "type": "function",
    "function": {"name": "get_weather", "description": "of a city", "parameters": FEW},
}


@pytest.mark.parametrize(
    ("signs", "shown", "id_chars"),
    [
        ("[TOOL_CALLS] [ARGS]", "[TOOL_CALLS]FUNCTION[ARGS]{", 9),
        (
            "<|tool_call>call: <|turn>",
            '<|tool_call>call:FUNCTION{PARAMETER:<|"|>VALUE<|"|>}<tool_call|>',
            32,
        ),
        ("List of tools: [", '<|tool_call_start|>[FUNCTION(PARAMETER="VALUE")]<|tool_call_end|>', 32),
        ("dsml_token DSML tool_calls", '<｜DSML｜parameter name="PARAMETER" string="true">VALUE</', 32),
    ],
    ids=["mistral", "gemma-4", "lfm-2", "deepseek-v4"],
)
def test_the_notation_is_the_templates(smollm2: Path, signs: str, shown: str, id_chars: int) -> None:
    template = PLAIN.replace("SIGNS", signs)
    with loaded(smollm2, {"ctx-size": 1024, "parallel": 1, "chat-template": template}) as instance:
        body = ASK | {
            "tools": [SHORT],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_tokens": 200,
        }
        assert shown in instance.post("/apply-template", body)["prompt"]
        choice = instance.post("/v1/chat/completions", body)["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        (call,) = choice["message"]["tool_calls"]
        assert len(call["id"]) == id_chars
        jsonschema.validate(json.loads(call["function"]["arguments"]), FEW)
        (streamed,) = calls_of(instance.stream("/v1/chat/completions", body))
        assert streamed["arguments"] == call["function"]["arguments"]
