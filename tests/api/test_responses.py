"""Requests of OpenAI's responses: which conversation they are, and what is refused in their own terms."""

from __future__ import annotations

from typing import Any

import pytest

from llamad.api.generation import Generation
from llamad.api.responses import ResponsesRequest, parse_counted, parse_responses
from llamad.errors import RequestError
from tests.api.vocabulary_for_tests import ByteVocabulary

VOCABULARY = ByteVocabulary()
USER = {"role": "user", "content": "hi"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "weather", "description": "Tells it.", "parameters": PARAMETERS}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Łódź"}'}


def parsed(given: Any = "hi", **fields: Any) -> ResponsesRequest:
    return parse_responses({"input": given, **fields}, Generation(), VOCABULARY)


def messages(given: Any, **fields: Any) -> list[dict[str, Any]]:
    return list(parsed(given, **fields).chat.conversation.messages)


def text(words: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": words}


# ---- conversations


@pytest.mark.parametrize(
    "given",
    [
        "hi",
        [USER],
        [{"type": "message", **USER}],
        [{"role": "user", "content": [text("hi", "input_text")]}],
        [{"type": "message", "role": "user", "status": "completed", "content": [text("hi", "input_text")]}],
    ],
    ids=str,
)
def test_ways_to_say_hi(given: Any) -> None:
    assert messages(given) == [USER]


def test_instructions_come_first_and_developers_speak_for_the_system() -> None:
    made = messages([{"role": "developer", "content": "B"}, USER], instructions="A")
    assert made == [{"role": "system", "content": "A"}, {"role": "system", "content": "B"}, USER]


def test_what_the_assistant_did_is_one_message() -> None:
    made = messages(
        [
            USER,
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [text("Hm.", "reasoning_text")]},
            {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "xyz"},
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "content": [text("I look.", "output_text")],
            },
            CALL,
            {**CALL, "call_id": "c2", "id": "fc_2"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            {"type": "function_call_output", "call_id": "c2", "output": [text("sun", "input_text")]},
            USER,
        ]
    )
    call = {"type": "function", "function": {"name": "weather", "arguments": '{"city":"Łódź"}'}}
    assert made == [
        USER,
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "c1", **call}, {"id": "c2", **call}],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
        {"role": "tool", "content": "sun", "tool_call_id": "c2"},
        USER,
    ]


def test_a_summary_stands_for_a_thought() -> None:
    thought = {"type": "reasoning", "summary": [text("Hm.", "summary_text")]}
    made = messages([USER, thought, {"role": "assistant", "content": "x"}, USER])
    assert made[1] == {"role": "assistant", "content": "x", "reasoning_content": "Hm."}


def test_an_answer_can_be_sent_back_as_it_came() -> None:
    from tests.api.test_responses_answer import ALL, BY_EOS, dialect, whole

    output = whole(dialect(ALL), BY_EOS)["output"]
    (_, assistant, *_) = messages(
        [USER, *output, {"type": "function_call_output", "call_id": "c1", "output": ""}]
    )
    assert (assistant["content"], assistant["reasoning_content"]) == ("I look.", "Hm.")
    assert [call["id"] for call in assistant["tool_calls"]] == ["c1", "c2"]


# ---- tools, form, and the rest


def test_tools() -> None:
    toolbox = parsed(tools=[{**WEATHER, "strict": True}], parallel_tool_calls=False).chat.conversation.toolbox
    (tool,) = toolbox.tools
    assert (tool.name, tool.description, tool.parameters) == ("weather", "Tells it.", PARAMETERS)
    assert toolbox.parallel is False


@pytest.mark.parametrize(
    ("given", "choice", "callable"),
    [
        ("auto", "auto", ()),
        ("none", "none", ()),
        ("required", "required", ()),
        ({"type": "function", "name": "weather"}, "required", ("weather",)),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]},
            "required",
            ("weather",),
        ),
    ],
    ids=str,
)
def test_choices_of_tools(given: Any, choice: str, callable: tuple[str, ...]) -> None:
    toolbox = parsed(tools=[WEATHER], tool_choice=given).chat.conversation.toolbox
    assert (toolbox.choice, toolbox.callable) == (choice, callable)


WEB: dict[str, Any] = {"type": "web_search", "external_web_access": False}
PATCH: dict[str, Any] = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}


def test_tools_that_are_no_functions_are_left_out_and_it_is_said() -> None:
    request = parsed(tools=[WEB, WEATHER, PATCH, WEB], tool_choice="auto")
    assert [tool.name for tool in request.chat.conversation.toolbox.tools] == ["weather"]
    assert request.left_out == ("web_search", "custom")
    assert request.echo["tools"] == [WEATHER]
    alone = parsed(tools=[WEB], tool_choice="auto")
    assert (alone.chat.conversation.toolbox.tools, alone.left_out) == ((), ("web_search",))
    assert parse_counted({"input": "hi", "tools": [WEB, WEATHER]}).toolbox.tools[0].name == "weather"


def test_what_was_left_out_is_not_among_those_allowed() -> None:
    allowed = [{"type": "web_search"}, {"type": "function", "name": "weather"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    toolbox = parsed(tools=[WEB, WEATHER], tool_choice=choice).chat.conversation.toolbox
    assert (toolbox.choice, toolbox.callable) == ("auto", ("weather",))


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([WEB, WEATHER], {"type": "web_search"}),
        ([PATCH, WEATHER], {"type": "custom", "name": "apply_patch"}),
        ([WEB], "required"),
        ([WEB, WEATHER], {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}),
    ],
    ids=str,
)
def test_who_demands_a_tool_that_is_no_function_is_refused(tools: list[Any], choice: Any) -> None:
    with pytest.raises(RequestError, match="runs no tools itself") as caught:
        parsed(tools=tools, tool_choice=choice)
    assert caught.value.details["param"].startswith("tool_choice")


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, "json_schema"),
        ({"type": "json_schema", "name": "city", "schema": PARAMETERS, "strict": True}, "json_schema"),
    ],
    ids=str,
)
def test_the_form_of_an_answer(form: dict[str, Any], kind: str | None) -> None:
    rules = parsed(text={"format": form, "verbosity": "low"}).chat.generation.rules
    assert (rules and rules.kind) == kind


def test_fields_that_mean_the_same_everywhere() -> None:
    chat = parsed(
        max_output_tokens=5,
        temperature=0.5,
        top_p=0.9,
        seed=7,
        stream=True,
        model="m",
        reasoning={"effort": "low"},
    ).chat
    generation = chat.generation
    assert (generation.max_tokens, generation.sampling.temperature, generation.sampling.top_p) == (
        5,
        0.5,
        0.9,
    )
    assert (generation.sampling.seed, chat.streaming.wanted, chat.model) == (7, True, "m")
    assert chat.conversation.variables == {"reasoning_effort": "low"}


def test_a_length_by_another_name_holds() -> None:
    """A request rule may have put it there."""
    assert parsed(max_tokens=3).chat.generation.max_tokens == 3


def test_what_asks_for_nothing_is_taken() -> None:
    parsed(
        store=False,
        background=False,
        previous_response_id=None,
        conversation=None,
        truncation="disabled",
        include=["reasoning.encrypted_content"],
        service_tier="auto",
        stream_options={"include_obfuscation": False},
        reasoning={"effort": None, "summary": "auto"},
        prompt_cache_key="k",
        user="u",
    )


def test_what_a_response_says_of_its_request() -> None:
    echo = parsed(
        tools=[WEATHER], tool_choice="none", metadata={"a": "b"}, instructions="Be kind.", temperature=0.25
    ).echo
    assert (echo["tools"], echo["tool_choice"], echo["metadata"]) == ([WEATHER], "none", {"a": "b"})
    assert (echo["instructions"], echo["temperature"], echo["store"]) == ("Be kind.", 0.25, False)


def test_counting() -> None:
    assert len(parse_counted({"input": "hi", "instructions": "x"}).messages) == 2


# ---- refusals


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ["hi"]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [USER, {"type": "item_reference", "id": "msg_1"}]}, "input[1].type"),
        ({"input": [USER, {"type": "web_search_call"}]}, "input[1].type"),
        ({"input": [USER, {"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[1].call_id"),
        ({"input": [USER, {"type": "function_call_output", "call_id": "c"}]}, "input[1].output"),
        ({"instructions": 5}, "instructions"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"max_output_tokens": "many"}, "max_output_tokens"),
        ({"tools": [{"name": "f"}]}, "tools[0].type"),
        ({"tools": ["web_search"]}, "tools[0]"),
        ({"tools": [{"type": "web_search"}] * 1025}, "tools"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"n": 2}, "n"),
    ],
    ids=str,
)
def test_a_refusal_names_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_responses({"input": "hi", **fields}, Generation(), VOCABULARY)
    assert caught.value.status == 400
    assert caught.value.details["param"] == param


def test_a_refusal_says_what_to_do_instead() -> None:
    with pytest.raises(RequestError, match="send the whole conversation as 'input'"):
        parsed(previous_response_id="resp_1")
