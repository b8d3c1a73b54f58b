"""What templates want of messages that trying does not find out. Prompts of whole conversations: test_prompts."""

from __future__ import annotations

from typing import Any

from llamad.api.refits import fitted, refits

CALLS = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": id, "function": {"name": f"tool_{id}", "arguments": {}}} for id in "abc"],
}


def result(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": id}


USER = {"role": "user", "content": "hi"}


def test_deepseek_v4_has_results_in_the_order_of_their_calls() -> None:
    changes = refits("dsml_token tool_calls")
    made = fitted([USER, CALLS, result("c"), result("a"), USER, result("b"), CALLS, result("b")], changes)
    assert [message.get("tool_call_id") for message in made] == [None, None, "a", "b", None, "c", None, "b"]
    assert fitted([CALLS, result("c"), result("a")], refits("dsml_token function_calls"))[1] == result("c")


def test_the_first_gemma_4_has_results_and_the_answer_in_the_message_that_calls() -> None:
    changes = refits("'<|tool_call>call:'")
    answer = {"role": "assistant", "content": "Done."}
    numbers = {**result("b"), "content": '{"n": 1}'}
    (_, calling, last) = fitted([USER, CALLS, result("a"), numbers, answer, USER], changes)
    assert calling["tool_responses"] == [
        {"name": "tool_a", "response": "a"},
        {"name": "tool_b", "response": {"n": 1}},
    ]
    assert (calling["content"], last) == ("Done.", USER)
    assert "tool_responses" not in CALLS


def test_other_templates_get_messages_as_they_are() -> None:
    messages = [USER, CALLS, result("a")]
    assert fitted(messages, refits("{{ messages }}")) == messages
