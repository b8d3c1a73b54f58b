"""Requests: what is read, what is refused, and that every refusal names field, expectation and find."""

from __future__ import annotations

from typing import Any

import pytest

from llamad.api.generation import Generation
from llamad.api.json_body import parse_object
from llamad.api.native import TOKENIZE_CHARS_MAX, parse_detokenize, parse_tokenize
from llamad.api.openai import parse_chat, parse_completion
from llamad.api.prompts import PROMPTS_MAX, TEXT_CHARS_MIN, prompt_chars, prompt_tokens
from llamad.api.sampling import FORBIDDEN
from llamad.engine.vocabulary import SEED_RANDOM, SamplingParams
from llamad.errors import RequestError
from tests.api.vocabulary_for_tests import BOS, ByteVocabulary

VOCABULARY = ByteVocabulary()
USER = {"role": "user", "content": "hi"}


def chat(**fields: Any):
    return parse_chat({"messages": [USER], **fields}, Generation(), VOCABULARY)


def completion(prompt: Any, **fields: Any):
    return parse_completion({"prompt": prompt, **fields}, Generation(), VOCABULARY)


def refusal(call, *args: Any, **kwargs: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        call(*args, **kwargs)
    assert caught.value.status == 400
    assert caught.value.message.startswith("cannot ")
    return caught.value


# ---- bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense" * 100_000,
        b"[" * 5_000,
        b'{"a":' * 5_000,
        b'{"a": "\x00"}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b'{"a": NaN}',
        b"[]",
        b'"text"',
        b"1e400",
    ],
    ids=lambda body: repr(body[:12]),
)
def test_a_broken_body_is_a_short_refusal(body: bytes) -> None:
    error = refusal(parse_object, body)
    assert error.kind == "bad-json"
    assert len(error.message) < 200


def test_a_good_body_is_its_object() -> None:
    assert parse_object('{"a": [1, "żółć \\u0000"]}'.encode()) == {"a": [1, "żółć \0"]}


# ---- shared fields


def test_all_fields_arrive() -> None:
    parsed = chat(
        model="qwen3:8b",
        max_tokens=7,
        stop=["a", "b", ""],
        seed=5,
        temperature=0,
        top_k=3,
        top_p=0.5,
        min_p=0.1,
        typical_p=0.9,
        repeat_last_n=-1,
        repeat_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=-0.3,
        logit_bias={"65": 2, "7": -100},
        ignore_eos=True,
        cache_prompt=False,
        id_slot=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert parsed.model == "qwen3:8b"
    assert parsed.streaming.wanted
    assert parsed.streaming.include_usage
    assert parsed.generation == Generation(
        stream=True,
        max_tokens=7,
        stop=("a", "b"),
        cache_prompt=False,
        id_slot=2,
        sampling=SamplingParams(
            seed=5,
            temperature=0.0,
            top_k=3,
            top_p=0.5,
            min_p=0.1,
            typical_p=0.9,
            repeat_last_n=-1,
            repeat_penalty=1.1,
            presence_penalty=0.2,
            frequency_penalty=-0.3,
            logit_bias=((65, 2.0), (7, -100.0)),
            ignore_eos=True,
        ),
    )


def test_what_is_absent_or_null_comes_from_the_defaults() -> None:
    defaults = Generation(max_tokens=9, stop=("x",), sampling=SamplingParams(temperature=0.1, seed=3))
    parsed = parse_chat(
        {"messages": [USER], "temperature": None, "stop": None, "n": None}, defaults, VOCABULARY
    )
    assert parsed.generation == defaults
    assert not parsed.streaming.wanted


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 3}, 3),
        ({"n_predict": 4}, 4),
        ({"max_completion_tokens": 5, "max_tokens": 3, "n_predict": 4}, 4),
        ({"max_completion_tokens": 5, "max_tokens": 3}, 5),
        ({"max_tokens": 3.0}, 3),
        ({"max_tokens": -1}, -1),
        ({}, -1),
    ],
)
def test_max_tokens_has_three_names(fields: dict[str, Any], expected: int) -> None:
    assert chat(**fields).generation.max_tokens == expected


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(-1, SEED_RANDOM), (0, 0), (2**32 + 5, 5), (2**63 - 1, SEED_RANDOM), (2**64 - 2, 2**32 - 2)],
)
def test_seeds_of_64_bits_lose_their_high_ones(seed: int, expected: int) -> None:
    assert chat(seed=seed).generation.sampling.seed == expected


def test_stop_may_be_one_text() -> None:
    assert chat(stop="\n").generation.stop == ("\n",)


def test_logit_bias_as_pairs_takes_texts_and_false() -> None:
    parsed = chat(logit_bias=[[65, False], ["BC", 1.5], ["70", -1]])
    assert parsed.generation.sampling.logit_bias == ((65, FORBIDDEN), (66, 1.5), (67, 1.5), (70, -1.0))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"temperature": "hot"}, ["'temperature'", "a number", "a string"]),
        ({"temperature": True}, ["'temperature'", "a number", "true"]),
        ({"top_p": 1.5}, ["'top_p'", "from 0 to 1", "1.5"]),
        ({"max_tokens": 1.5}, ["'max_tokens'", "a whole number", "1.5"]),
        ({"max_tokens": 10**40}, ["'max_tokens'", "from -1 to 2147483647"]),
        ({"max_tokens": -2}, ["'max_tokens'", "-2"]),
        ({"stream": "yes"}, ["'stream'", "true or false", "a string"]),
        ({"stream_options": {"include_usage": 1}}, ["'stream_options.include_usage'", "the number 1"]),
        ({"stream_options": [1]}, ["'stream_options'", "an object", "an array"]),
        ({"stop": [1]}, ["'stop'", "strings"]),
        ({"stop": ["x"] * 65}, ["64"]),
        ({"seed": "1"}, ["'seed'", "a whole number"]),
        ({"model": 3}, ["'model'", "a string", "the number 3"]),
        ({"logit_bias": 3}, ["'logit_bias'", "an object"]),
        ({"logit_bias": {"300": 1}}, ["'logit_bias[0]'", "from 0 to 256", "300"]),
        ({"logit_bias": {"1": "much"}}, ["'logit_bias[0]'", "a number or false"]),
        ({"logit_bias": [[1]]}, ["'logit_bias[0]'", "a pair"]),
        ({"messages": None}, ["'messages'", "an array"]),
        ({"messages": []}, ["'messages'", "at least one", "got an empty array"]),
        ({"messages": "hi"}, ["'messages'", "an array", "a string"]),
        ({"messages": ["hi"]}, ["'messages[0]'", "an object", "a string"]),
        ({"messages": [{"content": "hi"}]}, ["'messages[0].role'", "a string", "null"]),
        ({"messages": [{"role": "user"}]}, ["'messages[0].content'", "null"]),
        ({"messages": [USER, {"role": "user", "content": None}]}, ["'messages[1].content'", "null"]),
        ({"messages": [{"role": "user", "content": ["x"]}]}, ["'messages[0].content[0]'", "a string"]),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
            ["'messages[0].content[0].text'", "the number 5"],
        ),
        ({"chat_template_kwargs": "x"}, ["'chat_template_kwargs'", "an object"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_field_is_named_with_what_was_expected_and_found(
    fields: dict[str, Any], words: list[str]
) -> None:
    message = refusal(chat, **fields).message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"best_of": 2}, "best_of"),
        ({"functions": [{}]}, "functions"),
        ({"grammar": 'root ::= "x"', "grammar_lazy": True}, "grammar_lazy"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_would_change_the_answer_and_is_not_served_is_refused_by_name(
    fields: dict[str, Any], name: str
) -> None:
    error = refusal(chat, **fields)
    assert error.kind == "unsupported-field"
    assert repr(name) in error.message
    assert error.body()["error"]["param"] == name


@pytest.mark.parametrize(("name", "value"), [("tools", [{}]), ("tool_choice", "required")])
def test_tools_are_for_chats(name: str, value: Any) -> None:
    error = refusal(completion, "A", **{name: value})
    assert (error.kind, error.body()["error"]["param"]) == ("unsupported-field", name)


def test_what_asks_for_nothing_is_served() -> None:
    chat(
        n=1,
        tools=[],
        tool_choice="auto",
        response_format={"type": "text"},
        logprobs=False,
        top_logprobs=0,
        grammar="",
        modalities=["text"],
        mirostat=0,
        top_n_sigma=-1.0,
        user="someone",
        metadata={"a": "b"},
    )


@pytest.mark.parametrize(
    ("field", "nothing", "something"),
    [
        ("t_max_prompt_ms", -1, 500),
        ("backend_sampling", False, True),
        ("chat_format", 0, 2),
        ("chat_parser", "", "x"),
        ("generation_prompt", "", "<think>"),
        ("preserved_tokens", [], ["<tool>"]),
        ("parse_tool_calls", True, False),
        ("reasoning_control", False, True),
        ("chat_template", None, "{{ messages }}"),
        ("grammar_lazy", False, True),
    ],
)
def test_what_llama_server_has_and_is_not_served_is_refused_by_name(
    field: str, nothing: Any, something: Any
) -> None:
    chat(**{field: nothing})
    error = refusal(completion, "x", **{field: something})
    assert (error.kind, error.details["param"]) == ("unsupported-field", field)


# ---- conversations


def test_a_last_message_of_the_assistant_is_a_begun_answer() -> None:
    conversation = chat(messages=[USER, {"role": "assistant", "content": "Well, "}]).conversation
    assert conversation.messages == (USER,)
    assert conversation.prefill == "Well, "
    parts = [{"type": "text", "text": "Well,"}, {"type": "text", "text": "so"}]
    conversation = chat(messages=[USER, {"role": "assistant", "content": parts}]).conversation
    assert conversation.prefill == "Well,\n\nso"
    assert conversation.add_generation_prompt


@pytest.mark.parametrize(
    "messages",
    [[{"role": "assistant", "content": "x"}], [USER, *[{"role": "assistant", "content": "x"}] * 2]],
)
def test_a_begun_answer_needs_a_question_before_it(messages: list[dict[str, str]]) -> None:
    assert "go on" in refusal(chat, messages=messages).message


@pytest.mark.parametrize(
    ("wanted", "last"),
    [
        (True, {"content": "x"}),
        ("content", {"content": "x"}),
        ("content", {"content": "x", "reasoning_content": "y"}),
        (True, {"content": "", "reasoning_content": "y"}),
        ("reasoning_content", {"content": "", "reasoning_content": "y"}),
    ],
)
def test_a_request_may_say_that_its_answer_has_begun(wanted: Any, last: dict[str, str]) -> None:
    messages = [USER, {"role": "assistant", **last}]
    parsed = chat(messages=messages, continue_final_message=wanted, add_generation_prompt=False).conversation
    assert (parsed.continued, parsed.goes_on, parsed.prefill) == (True, True, last["content"])
    assert not chat(messages=messages, continue_final_message=False).conversation.continued


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"messages": [USER]}, "a message of the assistant's"),
        ({"continue_final_message": "reasoning_content"}, "a reasoning_content of"),
        ({"add_generation_prompt": True}, "'add_generation_prompt'"),
        ({"continue_final_message": "all"}, "expected true, false"),
    ],
)
def test_what_has_not_begun_cannot_go_on(fields: dict[str, Any], words: str) -> None:
    messages = [USER, {"role": "assistant", "content": "x"}]
    error = refusal(chat, **{"messages": messages, "continue_final_message": True, **fields})
    assert words in error.message
    assert error.details["param"] == "continue_final_message"


def test_template_variables_arrive() -> None:
    parsed = chat(chat_template_kwargs={"enable_thinking": False}, reasoning_effort="low")
    assert parsed.conversation.variables == {"enable_thinking": False, "reasoning_effort": "low"}


# ---- prompts


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("AB", [(BOS, 65, 66)]),
        ([65, 66], [(65, 66)]),
        (["AB", 67], [(BOS, 65, 66, 67)]),
        ([67, "AB"], [(67, 65, 66)]),
        (["A", "B"], [(BOS, 65), (BOS, 66)]),
        ([[65], ["A", 66], "C"], [(65,), (BOS, 65, 66), (BOS, 67)]),
    ],
    ids=str,
)
def test_prompts_are_texts_tokens_mixes_or_several(prompt: Any, expected: list[tuple[int, ...]]) -> None:
    prompts = completion(prompt).prompts
    assert [prompt_tokens(each, VOCABULARY) for each in prompts] == expected


def test_only_text_costs_tokenising() -> None:
    long = "x" * 100
    assert prompt_chars(("abc", 1, long)) == TEXT_CHARS_MIN + 100, "a short text costs a call, too"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (None, ["'prompt'", "null"]),
        (5, ["'prompt'", "the number 5"]),
        ({}, ["'prompt'", "an object"]),
        ([], ["'prompt'", "at least one"]),
        ([257], ["'prompt[0]'", "from 0 to 256", "257"]),
        ([-1], ["'prompt[0]'", "-1"]),
        ([1.5], ["'prompt[0]'", "1.5"]),
        ([["A"], [[]]], ["'prompt[1][0]'", "an empty array"]),
        (["x"] * (PROMPTS_MAX + 1), [str(PROMPTS_MAX)]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_wrong_prompt_is_refused(prompt: Any, words: list[str]) -> None:
    message = refusal(completion, prompt).message
    for word in words:
        assert word in message


def test_an_empty_prompt_is_refused() -> None:
    class NoBos(ByteVocabulary):
        def tokenize(self, text: str, add_special: bool, parse_special: bool) -> tuple[int, ...]:
            return super().tokenize(text, False, parse_special)

    assert refusal(prompt_tokens, ("",), NoBos()).kind == "empty-prompt"


def test_more_token_ids_than_fit_are_refused_by_their_number() -> None:
    error = refusal(completion, [1] * (VOCABULARY.n_ctx + 1))
    assert error.kind == "exceed-context-size"
    assert error.details == {"n_prompt_tokens": VOCABULARY.n_ctx + 1, "n_ctx": VOCABULARY.n_ctx}


@pytest.mark.parametrize("value", [0, 5, -1, "10m"])
@pytest.mark.parametrize("field", ["keep_alive", "ttl"])
def test_how_long_a_model_stays_is_no_business_of_a_request(field: str, value: object) -> None:
    assert refusal(chat, **{field: value}).kind == "unsupported-field"
    assert refusal(completion, "x", **{field: value}).kind == "unsupported-field"


# ---- llama.cpp's own


def test_tokenize_has_the_defaults_of_llama_server() -> None:
    parsed = parse_tokenize({"content": "x"})
    assert (parsed.content, parsed.add_special, parsed.parse_special, parsed.with_pieces) == (
        ("x",),
        False,
        True,
        False,
    )
    assert parse_tokenize({"content": ["x", 5, "y"]}).content == ("x", 5, "y")
    assert parse_tokenize({}).content == ()
    assert "'content'" in refusal(parse_tokenize, {"content": [True]}).message


def test_tokenize_has_a_bound() -> None:
    assert (
        str(TOKENIZE_CHARS_MAX)
        in refusal(parse_tokenize, {"content": "x" * (TOKENIZE_CHARS_MAX + 1)}).message
    )


def test_tokenizing_many_texts_has_a_bound_of_its_own() -> None:
    """A text of one character costs as much as one of thirty."""
    most = TOKENIZE_CHARS_MAX // TEXT_CHARS_MIN
    assert len(parse_tokenize({"content": ["a"] * most}).content) == most
    assert f"{most + 1} texts" in refusal(parse_tokenize, {"content": ["a"] * (most + 1)}).message


def test_detokenize_reads_token_ids() -> None:
    assert parse_detokenize({"tokens": [1, 2]}, 3) == (1, 2)
    assert "'tokens[1]'" in refusal(parse_detokenize, {"tokens": [1, 3]}, 3).message
