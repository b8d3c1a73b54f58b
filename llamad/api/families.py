"""The table of families: how their templates are told apart. How their models write is in `notations`.

A template is recognised by what stands in its text, because files carry no name that can be relied on; the first row
whose signs all fit counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from llamad.api import notations as family
from llamad.api.notation import Calls, Notation, Thought


@dataclass(frozen=True, slots=True)
class _Row:
    signs: tuple[str, ...]
    notation: Notation
    unless: tuple[str, ...] = ()

    def fits(self, template: str) -> bool:
        return all(sign in template for sign in self.signs) and not any(
            word in template for word in self.unless
        )


_ROWS = (
    _Row(("<|channel|>",), family.HARMONY),
    _Row(("<|tool_call>call:", "<|turn>"), family.GEMMA_4),
    _Row(("<|tool_list_start|>", "<|tool_list_end|>"), family.LFM_2),
    _Row(("List of tools: [",), family.LFM_2),
    _Row(("<|role_sep|>", "<|message_sep|>", "<|function_call|>"), family.GIGACHAT_31),
    _Row(("<|role_sep|>", "<|message_sep|>"), family.GIGACHAT_3),
    _Row(("dsml_token", "DSML", "function_calls"), Notation("deepseek-v3.2", calls=family.dsml("function_calls"))),
    _Row(
        ("dsml_token", "DSML", "tool_calls"),
        Notation("deepseek-v4", Thought("<think>", "</think>", bare=True), family.dsml("tool_calls")),
    ),
    _Row(("<|open|>", "<|close|>", "<|end_of_msg|>"), family.KIMI_3),
    _Row(("<|tools_prefix|>", "<|tools_suffix|>"), family.APERTUS),
    _Row(("<|tool_call:begin|>", "<|tool_call:args|>"), family.SOLAR),
    _Row(("<tool_sep{}>", "<arg_key{}>", ":opensource"), family.HY_3),
    _Row(('<function name="', '<param name="'), family.MINICPM_5),
    _Row(("<beginning_of_sentence>", "<tool_calls>"), family.MINIMAX_1),
    _Row(("<|START_ACTION|>", "<|START_RESPONSE|>"), family.COMMAND_R7B),
    _Row(("<|START_ACTION|>", "<|START_TEXT|>"), family.COMMAND_A),
    _Row(("Action:", "tool_name", "<|CHATBOT_TOKEN|>"), family.COMMAND_R),
    _Row(("<｜tool▁calls▁begin｜>", "```json"), family.DEEPSEEK_R1),
    _Row(("<｜tool▁calls▁begin｜>",), family.DEEPSEEK_V3),
    _Row(("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"), family.KIMI),
    _Row(("[TOOL_CALLS]", "[CALL_ID]"), family.MISTRAL_IDS),
    _Row(("[TOOL_CALLS]", "[ARGS]"), family.MISTRAL_ARGS),
    _Row(("[TOOL_CALLS]",), family.MISTRAL),
    _Row(("<seed:tool_call>", "<function="), family.SEED),
    _Row(("<minimax:tool_call>", "<invoke name="), family.MINIMAX),
    _Row(("functools[",), family.FIREFUNCTION),
    _Row(("<role>ASSISTANT</role>", "<arg_key>"), family.LING),
    _Row(("<tool_call>", "</arg_key><arg_value>"), family.GLM_TIGHT),
    _Row(("<tool_call>", "<arg_key>", "<available_tools>"), family.GLM_TIGHT, unless=("</arg_key>\\n<arg_value>",)),
    _Row(("<tool_call>", "<arg_key>", "<arg_value>"), family.GLM),
    _Row(("<tool_call>", "<function=", "<parameter="), family.QWEN_CODER),
    _Row(("<tool_calls>[",), Notation("apriel", calls=family.listed("<tool_calls>", "</tool_calls>"))),
    _Row(("<TOOLCALL>[",), Notation("nemotron", calls=family.listed("<TOOLCALL>", "</TOOLCALL>"))),
    _Row(("<|tool_call|>", "<|/tool_call|>"), Notation("phi-4", calls=family.listed("<|tool_call|>", "<|/tool_call|>"))),
    _Row(("<|tool_call|>",), Notation("granite", calls=family.listed("<|tool_call|>", ""))),
    _Row(("<tool_call>", '"name"', '"arguments"'), Notation("hermes", calls=Calls(family.TAGGED, "<tool_call>"))),
    _Row(("<tool_call>", '\\"name\\"', '\\"arguments\\"'), Notation("hermes", calls=Calls(family.TAGGED, "<tool_call>"))),
    _Row(("<function=", "</function>"), family.FUNCTIONARY, unless=("<parameter",)),
    _Row(("<|start_header_id|>", '{"name": "', '"parameters": '), family.LLAMA_3),
)  # fmt: skip

_THOUGHTS = (
    Thought("<think>", "</think>"),
    Thought("[THINK]", "[/THINK]"),
    Thought("<seed:think>", "</seed:think>"),
)


def recognise(template: str) -> Notation:
    """The notation of the model that a template is for."""
    notation = next((row.notation for row in _ROWS if row.fits(template)), family.GENERIC)
    if notation.thought is not None:
        return notation
    # Thoughts are told apart for themselves: families of calls have members with and without.
    thought = next((thought for thought in _THOUGHTS if thought.closes in template), None)
    return replace(notation, thought=thought)


def notations() -> Iterator[Notation]:
    """All of them, as they stand in the table."""
    yield family.GENERIC
    for row in _ROWS:
        yield row.notation
