"""Prompts are llama-server's, with the templates of all families, for all kinds of conversations.

Where they differ, and why, stands in `OURS`: in tools for templates that do not tell the model of any, where llama-server
leaves the model in the dark, and in a few flaws that are not worth having.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.api.conversation import parse_conversation
from llamad.api.families import recognise
from llamad.api.fields import Fields
from llamad.api.template import ChatTemplate
from llamad.api.thinking import Thinking
from llamad.api.turn import prompt_of
from llamad.errors import RequestError
from tests.api.chat_conversations import CONVERSATIONS
from tests.api.record_prompts import BOS, EOS

HERE = Path(__file__).parent
TEMPLATES = {path.stem: path.read_text() for path in sorted((HERE / "templates").glob("*.jinja"))}
BEGUN = {"a begun answer", "a begun answer after a thought"}
WITH_TOOLS = {name for name, body in CONVERSATIONS.items() if "tools" in body}
WITH_RESULTS = {
    name
    for name, body in CONVERSATIONS.items()
    if any(message["role"] == "tool" for message in body["messages"])
}
WITH_CALLS = {
    name
    for name, body in CONVERSATIONS.items()
    if any("tool_calls" in message for message in body["messages"])
}
OURS: dict[str, set[str]] = {
    # They tell of no tools, and of no calls: both are put in words.
    "google-gemma-2-2b-it": WITH_TOOLS | WITH_RESULTS,
    "google-gemma-3-it": WITH_TOOLS | WITH_RESULTS,
    "HuggingFaceTB-SmolLM3-3B": WITH_TOOLS | WITH_RESULTS,
    # llama-server cuts `<|assistant|>` to `assistant|>`, because the template ends with an end mark where no answer is begun.
    "microsoft-Phi-3.5-mini-instruct": WITH_TOOLS | WITH_RESULTS | BEGUN,
    "llama-cpp-microsoft-Phi-4-mini-instruct": BEGUN,
    # They tell of calls, but of no tools.
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": WITH_TOOLS,
    "deepseek-ai-DeepSeek-V3.1": WITH_TOOLS,
    # It tells of tools, but of no calls.
    "ibm-granite-granite-3.3-2B-Instruct": WITH_RESULTS,
    # Python's way to print texts in a list; llama-server leaves newlines in them as they are.
    "unsloth-Apriel-1.5": WITH_TOOLS,
    # llama-server takes it for a model that thinks.
    "Kimi-K2-Instruct": BEGUN,
    # There, too, and what the assistant has said gets lost.
    "unsloth-mistral-Devstral-Small-2507": BEGUN | {"a thought before"},
    # llama-server keeps the newline after the mark that the prompt of a new answer has.
    "NVIDIA-Nemotron-Nano-v2": BEGUN,
    # The template takes parts, and joins them with nothing.
    "mistralai-Ministral-3-14B-Reasoning-2512": {"content in parts"},
    "LFM2.5-8B-A1B": {"content in parts"},
    # They tell of no calls; llama-server leaves them out, and takes the first for one that thinks.
    "LFM2-8B-A1B": WITH_CALLS | BEGUN,
    "LFM2.5-Instruct": WITH_CALLS,
    # llama-server takes it for one that does not think.
    "Apertus-8B-Instruct": {"a begun answer after a thought"},
    # It writes nothing between the role and a begun answer, neither thought nor mark.
    "upstage-Solar-Open-100B": BEGUN,
    # It leaves out objects that are printed as they are.
    "openbmb-MiniCPM5-1B": WITH_CALLS,
    # It has one newline more before a begun answer than answers have.
    "StepFun3.5-Flash": BEGUN,
}
NULLS = {"google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"}
"""Templates that print nulls as they are: `None`, which llama-server leaves out."""


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((HERE / "prompts.json").read_text())
    return document


def template(name: str, now: datetime) -> ChatTemplate:
    return ChatTemplate(TEMPLATES[name], bos_token=BOS, eos_token=EOS, now=lambda: now)


def prompt(template: ChatTemplate, body: dict[str, Any]) -> str | None:
    try:
        return prompt_of(parse_conversation(Fields(body)), template, recognise(template.source), Thinking())
    except RequestError:
        return None


@pytest.mark.parametrize("name", TEMPLATES)
def test_prompts_are_those_of_llama_server(name: str, recorded: dict[str, Any]) -> None:
    used = template(name, datetime.strptime(recorded["date"], "%Y-%m-%d"))
    for kind, body in CONVERSATIONS.items():
        if kind not in OURS.get(name, set()):
            ours = prompt(used, body)
            if ours is not None and name in NULLS:
                ours = ours.replace("None", "")
            assert ours == recorded["prompts"][name][kind], kind


@pytest.mark.parametrize("name", TEMPLATES)
def test_whatever_the_template_the_model_sees_tools_calls_and_results(name: str) -> None:
    text = prompt(template(name, datetime(2026, 1, 1)), CONVERSATIONS["a call and its result"])
    assert text is not None
    for word in ("get_weather", "now", "Its name", "exact", "1.5", "clear"):
        assert word in text, word


def test_most_families_are_compared() -> None:
    assert len({recognise(source).name for source in TEMPLATES.values()}) >= 30


_TEXTS = st.sampled_from(
    ["", " ", "hi", "<think>", "</think>", "<tool_call>", "<|im_end|>", "{{ x }}", "\U0001f98a"]
)
_CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "function": st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["get_weather", "x"]),
                    "arguments": st.sampled_from(["{}", '{"a": [{}]}']),
                }
            )
        },
        optional={"id": st.sampled_from(["callabc01", "c"])},
    ),
    max_size=2,
)
_MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "robot"]),
            "content": _TEXTS | st.lists(_TEXTS.map(lambda text: {"type": "text", "text": text}), max_size=2),
        },
        optional={"tool_calls": _CALLS, "reasoning_content": _TEXTS, "name": _TEXTS, "tool_call_id": _TEXTS},
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("name", TEMPLATES)
def test_any_conversation_has_a_prompt_or_is_refused(name: str) -> None:
    used = template(name, datetime(2026, 1, 1))

    @settings(max_examples=15, deadline=None, database=None)
    @given(_MESSAGES, st.booleans(), st.booleans())
    def holds(messages: list[dict[str, Any]], tools: bool, generation: bool) -> None:
        body = {"messages": messages, "add_generation_prompt": generation}
        with suppress(RequestError):
            parsed = parse_conversation(Fields(body | (CONVERSATIONS["tools"] | body if tools else {})))
            assert isinstance(prompt_of(parsed, used, recognise(used.source), Thinking()), str)

    holds()
