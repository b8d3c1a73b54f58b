"""A turn: which rules an answer gets, from where its parser goes on, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamad.api.conversation import parse_conversation
from llamad.api.families import recognise
from llamad.api.fields import Fields
from llamad.api.generation import Generation
from llamad.api.message import AssistantMessage, read_message
from llamad.api.notation import Spelling
from llamad.api.template import CHATML, ChatTemplate
from llamad.api.thinking import BUDGET_MAX, Thinking
from llamad.api.turn import Turn, plan_turn
from llamad.engine.vocabulary import Rules, ThoughtLimit
from llamad.errors import RequestError

USER = {"role": "user", "content": "hi"}
NOW = {"type": "function", "function": {"name": "now"}}
CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
SCHEMA = Rules("json_schema", '{"type":"object"}')
GRAMMAR = Rules("gbnf", 'root ::= "x"')
THINKING = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n{# </think> #}"
QWEN3 = (Path(__file__).parent / "templates" / "Qwen-Qwen3-0.6B.jinja").read_text()
CODER = "{% for m in messages %}{{ m.content }}{% endfor %}{# <tool_call> <function= <parameter= </think> #}"
GEMMA_4 = (Path(__file__).parent / "templates" / "google-gemma-4-31B-it.jinja").read_text()
DEEPSEEK_4 = (Path(__file__).parent / "templates" / "deepseek-ai-DeepSeek-V4.jinja").read_text()
HARMONY = (Path(__file__).parent / "templates" / "openai-gpt-oss-120b.jinja").read_text()


def turn(source: str = CHATML, rules: Rules | None = None, **fields: Any) -> Turn:
    conversation = parse_conversation(Fields({"messages": [USER], **fields}))
    spelling = Spelling(recognise(source), {"<|channel|>": 5} if source == HARMONY else {})
    return plan_turn(conversation, Generation(rules=rules), ChatTemplate(source), spelling, Thinking())


def read(planned: Turn, text: str) -> AssistantMessage:
    return read_message(planned.make_parser(), text)


def test_a_plain_chat_has_no_rules_and_is_not_looked_into() -> None:
    planned = turn()
    assert (planned.generation.rules, planned.generation.shown) == (None, ())
    assert read(planned, CALL) == AssistantMessage(CALL)


def test_tools_have_rules_and_calls_are_read() -> None:
    planned = turn(tools=[NOW])
    assert planned.generation.rules is not None
    assert planned.generation.rules.kind == "lark"
    assert [call.name for call in read(planned, CALL).calls] == ["now"]


def test_tools_that_must_not_be_called_are_described_but_not_looked_for() -> None:
    planned = turn(tools=[NOW], tool_choice="none")
    assert planned.generation.rules is None
    assert '"now"' in planned.prompt
    assert read(planned, CALL) == AssistantMessage(CALL)


def test_control_tokens_of_the_notation_are_shown() -> None:
    assert turn(HARMONY).generation.shown == ((5, b"<|channel|>"),)


def test_a_grammar_and_tools_do_not_go_together() -> None:
    with pytest.raises(RequestError) as caught:
        turn(rules=GRAMMAR, tools=[NOW])
    assert caught.value.details == {"param": "grammar"}
    assert turn(rules=GRAMMAR, tools=[NOW], tool_choice="none").generation.rules == GRAMMAR


@pytest.mark.parametrize(
    ("source", "rules", "fields", "kind"),
    [
        (CHATML, SCHEMA, {}, "json_schema"),
        (CHATML, GRAMMAR, {}, "gbnf"),
        (QWEN3, SCHEMA, {}, "lark"),
        (QWEN3, SCHEMA, {"chat_template_kwargs": {"enable_thinking": False}}, "json_schema"),
        (QWEN3, GRAMMAR, {}, "gbnf"),
        (THINKING, GRAMMAR, {}, "lark"),
        (HARMONY, SCHEMA, {}, "lark"),
        (CHATML, SCHEMA, {"tools": [NOW]}, "lark"),
    ],
    ids=[
        "plain",
        "plain",
        "may think",
        "does not think",
        "all of it",
        "has begun to think",
        "frames",
        "or a call",
    ],
)
def test_what_an_answer_must_be_leaves_room_for_what_comes_before(
    source: str, rules: Rules, fields: dict[str, Any], kind: str
) -> None:
    made = turn(source, rules, **fields).generation.rules
    assert made is not None
    assert made.kind == kind
    if kind == "lark":
        assert ("answer", rules) in made.parts


def test_a_thought_that_the_prompt_began_is_gone_on_with() -> None:
    assert read(turn(THINKING), "hm\n</think>\n\nso") == AssistantMessage("so", "hm")
    text = read(turn(THINKING, reasoning_format="none"), "hm\n</think>\n\nso")
    assert text == AssistantMessage("<think>\nhm\n</think>\n\nso")


def test_a_begun_answer_is_content_from_its_start() -> None:
    planned = turn(THINKING, messages=[USER, {"role": "assistant", "content": "So "}])
    assert planned.prompt.endswith("<think></think>So ")
    assert read(planned, "it is") == AssistantMessage("it is")


def test_a_begun_thought_is_gone_on_with() -> None:
    begun = {"role": "assistant", "content": "", "reasoning_content": "Well"}
    planned = turn(QWEN3, messages=[USER, begun])
    assert planned.prompt.endswith("<think>\nWell")
    assert read(planned, ", yes.\n</think>\n\nYes") == AssistantMessage("Yes", ", yes.")


def test_no_budget_is_no_thought() -> None:
    assert turn(THINKING, reasoning_budget_tokens=0).prompt.endswith("<think>\n</think>")
    planned = turn(QWEN3, reasoning_budget_tokens=0)
    assert planned.prompt.endswith("<think>\n\n</think>\n\n")
    assert planned.generation.rules is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_format": "loud"}, "reasoning_format"),
        ({"reasoning_budget_tokens": -2}, "reasoning_budget_tokens"),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs.enable_thinking"),
    ],
    ids=str,
)
def test_wrong_fields_of_thinking_are_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        turn(**fields)
    assert caught.value.details["param"] == param


def test_a_call_ends_the_count_where_it_ends_thoughts() -> None:
    for source, fields, others in (
        (CODER, {"tools": [NOW]}, ("<tool_call>",)),
        (CODER, {}, ()),
        (QWEN3, {"tools": [NOW]}, ()),
    ):
        limit = turn(source, reasoning_budget_tokens=7, **fields).generation.thought
        assert limit
        assert limit.others == others


def test_a_new_answer_is_opened_where_the_template_forgets_it() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages = [
        USER,
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "noon"},
    ]
    assert turn(GEMMA_4, messages=messages, tools=[NOW]).prompt.endswith("I look.<turn|>\n<|turn>model\n")
    closed = turn(GEMMA_4, messages=messages, tools=[NOW], add_generation_prompt=False)
    assert closed.prompt.endswith("I look.<turn|>\n")


def test_thoughts_of_earlier_answers_are_kept_unless_that_is_not_wanted() -> None:
    messages = [USER, {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm."}, USER]
    assert "Hm." in turn(DEEPSEEK_4, messages=messages).prompt
    for variables in ({"preserve_reasoning": False}, {"drop_thinking": True}):
        assert "Hm." not in turn(DEEPSEEK_4, messages=messages, chat_template_kwargs=variables).prompt


def test_calls_and_results_are_messages_where_the_template_knows_none() -> None:
    calling = {
        "role": "assistant",
        "tool_calls": [{"id": "a", "function": {"name": "now", "arguments": "{}"}}] * 2,
    }
    results = [{"role": "tool", "content": "noon"}, {"role": "tool", "content": "one"}]
    text = turn(tools=[NOW], messages=[USER, calling, *results]).prompt
    assert text.count("<|im_start|>user") == 2
    assert text.endswith(
        f"<|im_start|>assistant\n{CALL}\n{CALL}<|im_end|>\n<|im_start|>user\n<tool_response>\nnoon\n</tool_response>\n"
        "<tool_response>\none\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        (THINKING, ThoughtLimit(7, "", "</think>", "Enough.</think>")),
        (QWEN3, ThoughtLimit(7, "<think>", "</think>", "Enough.\n</think>\n\n")),
        (HARMONY, ThoughtLimit(7, "<|channel|>analysis<|message|>", "<|end|>", "Enough.<|end|>")),
        (CHATML, None),
    ],
    ids=["begun", "free", "frames", "does not think"],
)
def test_a_budget_bounds_a_thought(source: str, limit: ThoughtLimit | None) -> None:
    planned = turn(source, reasoning_budget_tokens=7, reasoning_budget_message="Enough.")
    assert planned.generation.thought == limit
    assert turn(source).generation.thought is None


@pytest.mark.parametrize("budget", [None, -1, 7])
def test_a_thought_may_be_ended_by_its_client(budget: int | None) -> None:
    limit = turn(QWEN3, reasoning_control=True, reasoning_budget_tokens=budget).generation.thought
    assert limit is not None
    assert limit.budget == (7 if budget == 7 else BUDGET_MAX)
    assert limit.enough is not None
    assert not limit.enough.said
    assert turn(CHATML, reasoning_control=True).generation.thought is None
    assert turn(QWEN3, reasoning_control=True, reasoning_budget_tokens=0).generation.thought is None
