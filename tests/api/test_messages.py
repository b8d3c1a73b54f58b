"""Anthropic's requests: which conversation they are, and what is refused in their own terms."""

from __future__ import annotations

from typing import Any

import pytest

from llamad.api.generation import Generation
from llamad.api.messages import MessagesRequest, parse_counted, parse_messages
from llamad.errors import RequestError
from tests.api.vocabulary_for_tests import ByteVocabulary

VOCABULARY = ByteVocabulary()
USER = {"role": "user", "content": "hi"}
WEATHER = {
    "name": "weather",
    "description": "Tells it.",
    "input_schema": {"type": "object", "properties": {}},
}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def parsed(**fields: Any) -> MessagesRequest:
    return parse_messages({"max_tokens": 8, "messages": [USER], **fields}, Generation(), VOCABULARY)


def messages(*given: Any, **fields: Any) -> list[dict[str, Any]]:
    return list(parsed(messages=list(given), **fields).chat.conversation.messages)


def refusal(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parsed(**fields)
    assert caught.value.status == 400
    assert caught.value.message.startswith("cannot ")
    return caught.value


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


# ---- conversations


def test_a_text_is_a_block_of_text() -> None:
    assert messages(USER) == [USER]
    assert messages({"role": "user", "content": [text("hi", cache_control={"type": "ephemeral"})]}) == [USER]


@pytest.mark.parametrize("system", ["Be kind.", [text("Be kind.", cache_control={"type": "ephemeral"})]])
def test_a_system_prompt_comes_first(system: Any) -> None:
    assert messages(USER, system=system) == [{"role": "system", "content": "Be kind."}, USER]


def test_blocks_of_a_system_prompt_are_parts() -> None:
    (system, _) = messages(USER, system=[text("A"), text("B")])
    assert system == {"role": "system", "content": [text("A"), text("B")]}


def test_a_stamp_that_changes_with_each_request_does_not_reach_the_prompt() -> None:
    stamp = (
        "x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={};You are a coder. cch=a5145;"
    )
    first, second = (messages(USER, system=stamp.format(cch))[0] for cch in ("a5145", "00fe9"))
    assert first == second
    assert first["content"].endswith(";You are a coder. cch=a5145;")
    assert messages(USER, system="cch=a5145;")[0]["content"] == "cch=a5145;"


def test_turns_of_the_same_side_are_one() -> None:
    made = messages(
        USER, {"role": "user", "content": [text("there")]}, {"role": "assistant", "content": "yes"}, USER
    )
    assert made == [
        {"role": "user", "content": [text("hi"), text("there")]},
        {"role": "assistant", "content": "yes"},
        USER,
    ]


def test_a_call_and_its_result() -> None:
    made = messages(
        USER,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
                {"type": "redacted_thinking", "data": "xyz"},
                text("Let me see."),
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Łódź"}},
                {"type": "tool_use", "id": "t2", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "rain"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [text("sun")], "is_error": False},
                {"type": "tool_result", "tool_use_id": "t3"},
                text("So?"),
            ],
        },
        tools=[WEATHER],
    )
    assert made == [
        USER,
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Hm.",
            "tool_calls": [call("t1", "weather", '{"city":"Łódź"}'), call("t2", "weather", "{}")],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "t1"},
        {"role": "tool", "content": "sun", "tool_call_id": "t2"},
        {"role": "tool", "content": "", "tool_call_id": "t3"},
        {"role": "user", "content": "So?"},
    ]


def test_a_last_turn_of_the_assistant_is_a_begun_answer() -> None:
    conversation = parsed(
        messages=[USER, {"role": "assistant", "content": [text("It is")]}]
    ).chat.conversation
    assert conversation.messages == (USER,)
    assert conversation.prefill == "It is"


# ---- tools


def test_tools() -> None:
    toolbox = parsed(tools=[{**WEATHER, "type": "custom", "cache_control": {}}]).chat.conversation.toolbox
    (tool,) = toolbox.tools
    assert (tool.name, tool.description, tool.parameters) == ("weather", "Tells it.", WEATHER["input_schema"])
    assert (toolbox.choice, toolbox.parallel) == ("auto", None)


@pytest.mark.parametrize(
    ("given", "choice", "callable"),
    [
        ({"type": "auto"}, "auto", ()),
        ({"type": "any"}, "required", ()),
        ({"type": "none"}, "none", ()),
        ({"type": "tool", "name": "weather"}, "required", ("weather",)),
    ],
)
def test_choices_of_tools(given: dict[str, Any], choice: str, callable: tuple[str, ...]) -> None:
    toolbox = parsed(tools=[WEATHER], tool_choice=given).chat.conversation.toolbox
    assert (toolbox.choice, toolbox.callable) == (choice, callable)


SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}


def test_tools_of_anthropics_servers_are_left_out_and_it_is_said() -> None:
    request = parsed(tools=[SEARCH, WEATHER, {"type": "bash_20250124", "name": "bash"}])
    assert [tool.name for tool in request.chat.conversation.toolbox.tools] == ["weather"]
    assert request.left_out == ("web_search_20250305", "bash_20250124")
    assert parse_counted({"messages": [USER], "tools": [SEARCH]}).toolbox.tools == ()


@pytest.mark.parametrize(
    ("tools", "choice"),
    [([SEARCH, WEATHER], {"type": "tool", "name": "web_search"}), ([SEARCH], {"type": "any"})],
    ids=str,
)
def test_who_demands_a_tool_of_anthropics_servers_is_refused(tools: list[Any], choice: Any) -> None:
    with pytest.raises(RequestError, match="runs no tools itself") as caught:
        parsed(tools=tools, tool_choice=choice)
    assert caught.value.details["param"].startswith("tool_choice")


def test_calls_one_at_a_time() -> None:
    choice = {"type": "any", "disable_parallel_tool_use": True}
    assert parsed(tools=[WEATHER], tool_choice=choice).chat.conversation.toolbox.parallel is False


# ---- everything else


def test_fields_that_mean_the_same_everywhere() -> None:
    request = parsed(max_tokens=5, temperature=0.5, top_k=3, top_p=0.9, stream=True, seed=7, model="m")
    generation = request.chat.generation
    assert generation.max_tokens == 5
    sampling = generation.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed) == (0.5, 3, 0.9, 7)
    assert request.chat.streaming.wanted
    assert request.chat.model == "m"


@pytest.mark.parametrize("name", ["stop_sequences", "stop"])
def test_stop_sequences(name: str) -> None:
    """A request rule may have put the other name in its place."""
    request = parsed(**{name: ["END", "x"]})
    assert request.stops == request.chat.generation.stop == ("END", "x")


def test_stops_of_the_operator_are_not_the_clients() -> None:
    defaults = Generation(stop=("OPERATOR",))
    request = parse_messages({"max_tokens": 8, "messages": [USER]}, defaults, VOCABULARY)
    assert request.chat.generation.stop == ("OPERATOR",)
    assert request.stops == ()


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_a_length_is_required_by_whatever_name(name: str) -> None:
    document = {"messages": [USER], name: 9}
    assert parse_messages(document, Generation(), VOCABULARY).chat.generation.max_tokens == 9
    with pytest.raises(RequestError, match="'max_tokens'"):
        parse_messages({"messages": [USER]}, Generation(), VOCABULARY)


@pytest.mark.parametrize(
    ("thinking", "variables"),
    [
        ({"type": "enabled", "budget_tokens": 2048}, {"enable_thinking": True, "mine": 1}),
        ({"type": "disabled"}, {"enable_thinking": False, "mine": 1}),
        ({"type": "adaptive"}, {"mine": 1}),
        (None, {"mine": 1}),
    ],
)
def test_thinking_is_what_templates_read(thinking: Any, variables: dict[str, Any]) -> None:
    conversation = parsed(thinking=thinking, chat_template_kwargs={"mine": 1}).chat.conversation
    assert conversation.variables == variables
    assert conversation.thinking.budget == (thinking or {}).get("budget_tokens")


def test_thoughts_can_be_left_out() -> None:
    assert parsed(thinking={"type": "adaptive"}).shows_thoughts
    assert not parsed(thinking={"type": "adaptive", "display": "omitted"}).shows_thoughts


def test_effort_and_form() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    chat = parsed(output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}}).chat
    assert chat.conversation.variables == {"reasoning_effort": "low"}
    assert chat.generation.rules
    assert '"integer"' in chat.generation.rules.text


def test_what_asks_for_nothing_is_taken() -> None:
    parsed(context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})
    parsed(
        metadata={"user_id": "u"}, service_tier="auto", mcp_servers=[], container=None, n=1, cache_control={}
    )


def test_counting_needs_no_length() -> None:
    conversation = parse_counted({"messages": [USER], "system": "S", "tools": [WEATHER]})
    assert [message["role"] for message in conversation.messages] == ["system", "user"]
    assert conversation.toolbox.tools


# ---- refusals


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [text("x"), PNG]}]}, "messages[0].content[1].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
            "messages[0].content[0].tool_use_id",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "1", "content": [PNG]}],
                    }
                ]
            },
            "messages[0].content[0].content[0].type",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "1", "name": "f", "input": 3}],
                    }
                ]
            },
            "messages[0].content[0].input",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]}]},
            "messages[0].content[0].name",
        ),
        ({"system": 5}, "system"),
        ({"system": [PNG]}, "system[0].type"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": [1]}, "stop_sequences"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "tool", "name": "g"}, "tools": [WEATHER]}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "much"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        (
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            "context_management.edits[0]",
        ),
        ({"logprobs": True}, "logprobs"),
        ({"n": 2}, "n"),
    ],
    ids=str,
)
def test_a_refusal_names_the_field(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.details["param"] == param
