"""The table of families: how the models of today write their thoughts and calls, and how their templates are told apart.

A template is recognised by what stands in its text, because files carry no name that can be relied on; the first row
whose signs all fit counts. What a row says is what the family's own templates write (llama.cpp keeps a collection of
them in models/templates).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from llamad.api.notation import Calls, Notation, Thought

_JSON = '{"name": "«name»", "arguments": «arguments»}'
_TAGGED = f"<tool_call>\n{_JSON}\n</tool_call>"

GENERIC = Notation("generic", calls=Calls(_TAGGED, trigger="<tool_call>"), known=False)
"""For templates that know no tools, or whose notation is not known: the most common one, which the prompt then explains."""

UNREAD = Notation("unread")
"""Where answers are to be left as they are."""


@dataclass(frozen=True, slots=True)
class _Row:
    signs: tuple[str, ...]
    notation: Notation
    unless: tuple[str, ...] = ()

    def fits(self, template: str) -> bool:
        return all(sign in template for sign in self.signs) and not any(
            word in template for word in self.unless
        )


def _list(trigger: str, closes: str) -> Calls:
    """One JSON array of all calls after a mark."""
    return Calls(_JSON, trigger=trigger, opens=f"{trigger}[", apart=", ", closes=f"]{closes}")


_HARMONY = Notation(
    "harmony",
    Thought("<|channel|>analysis<|message|>", "<|end|>", resumes="<|start|>assistant"),
    Calls(
        "<|channel|>commentary to=functions.«name» <|constrain|>json<|message|>«arguments»",
        trigger="<|channel|>commentary to=functions.",
        apart="<|start|>assistant",
        others=(
            "<|start|>assistant to=functions.«name»<|channel|>commentary json<|message|>«arguments»",
            "<|channel|>analysis to=functions.«name» <|constrain|>json<|message|>«arguments»",
        ),
    ),
    frames=(
        *("<|channel|>final<|message|>", "<|channel|>commentary<|message|>"),
        *("<|start|>assistant", "<|end|>", "<|call|>"),
    ),
    answer=("<|channel|>final<|message|>", ""),
)
_COMMAND_R7B = Notation(
    "command-r7b",
    Thought("<|START_THINKING|>", "<|END_THINKING|>"),
    Calls(
        '{"tool_call_id": "«n»", "tool_name": "«name»", "parameters": «arguments»}',
        trigger="<|START_ACTION|>",
        opens="<|START_ACTION|>[\n    ",
        apart=",\n    ",
        closes="\n]<|END_ACTION|>",
    ),
    frames=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    answer=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)
_COMMAND_A = replace(
    _COMMAND_R7B,
    name="command-a",
    frames=("<|START_TEXT|>", "<|END_TEXT|>"),
    answer=("<|START_TEXT|>", "<|END_TEXT|>"),
)
_COMMAND_R = Notation(
    "command-r",
    calls=Calls(
        '    {\n        "tool_name": "«name»",\n        "parameters": «arguments»\n    }',
        trigger="Action:",
        opens="Action:\n```json\n[\n",
        apart=",\n",
        closes="\n]```",
    ),
)
_DEEPSEEK_SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DEEPSEEK_R1 = Notation(
    "deepseek-r1",
    calls=Calls(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>«name»\n```json\n«arguments»\n```<｜tool▁call▁end｜>",
        trigger=_DEEPSEEK_SECTION[0],
        opens=_DEEPSEEK_SECTION[0],
        closes=_DEEPSEEK_SECTION[1],
    ),
)
_DEEPSEEK_V3 = Notation(
    "deepseek-v3.1",
    calls=Calls(
        "<｜tool▁call▁begin｜>«name»<｜tool▁sep｜>«arguments»<｜tool▁call▁end｜>",
        trigger=_DEEPSEEK_SECTION[0],
        opens=_DEEPSEEK_SECTION[0],
        apart="",
        closes=_DEEPSEEK_SECTION[1],
    ),
)
_KIMI = Notation(
    "kimi-k2",
    calls=Calls(
        "<|tool_call_begin|>functions.«name»:«n»<|tool_call_argument_begin|>«arguments»<|tool_call_end|>",
        trigger="<|tool_calls_section_begin|>",
        opens="<|tool_calls_section_begin|>",
        apart="",
        closes="<|tool_calls_section_end|>",
    ),
)
_MISTRAL_IDS = Notation(
    "mistral-call-id",
    calls=Calls(
        "[TOOL_CALLS]«name»[CALL_ID]«id»[ARGS]«arguments»", trigger="[TOOL_CALLS]", apart="", id_chars=9
    ),
)
_MISTRAL_ARGS = Notation(
    "mistral-args",
    calls=Calls("[TOOL_CALLS]«name»[ARGS]«arguments»", trigger="[TOOL_CALLS]", apart="", id_chars=9),
)
_MISTRAL = Notation(
    "mistral",
    calls=Calls(
        '{"name": "«name»", "arguments": «arguments», "id": "«id»"}',
        trigger="[TOOL_CALLS]",
        opens="[TOOL_CALLS][",
        apart=", ",
        closes="]",
        id_chars=9,
    ),
)
_LLAMA_3 = Notation(
    "llama-3",
    calls=Calls(
        '{"name": "«name»", "parameters": «arguments»}',
        trigger="<|python_tag|>",
        opens="<|python_tag|>",
        apart="; ",
        bare='{"name":',
    ),
)
_GLM = Notation(
    "glm-4.5",
    calls=Calls(
        "<tool_call>«name»\n«pairs»</tool_call>",
        trigger="<tool_call>",
        pair="<arg_key>«key»</arg_key>\n<arg_value>«value»</arg_value>\n",
    ),
)
_GLM_TIGHT = Notation(
    "glm-4.7",
    calls=Calls(
        "<tool_call>«name»«pairs»</tool_call>",
        trigger="<tool_call>",
        apart="",
        pair="<arg_key>«key»</arg_key><arg_value>«value»</arg_value>",
    ),
)
_QWEN_CODER = Notation(
    "qwen3-coder",
    calls=Calls(
        "<tool_call>\n<function=«name»>\n«pairs»</function>\n</tool_call>",
        trigger="<tool_call>",
        pair="<parameter=«key»>\n«value»\n</parameter>\n",
    ),
)
_SEED = Notation(
    "seed-oss",
    calls=Calls(
        "<seed:tool_call>\n<function=«name»>\n«pairs»</function>\n</seed:tool_call>",
        trigger="<seed:tool_call>",
        pair="<parameter=«key»>«value»</parameter>\n",
    ),
)

_MINIMAX = Notation(
    "minimax-m2",
    calls=Calls(
        '<invoke name="«name»">\n«pairs»</invoke>',
        trigger="<minimax:tool_call>",
        opens="<minimax:tool_call>\n",
        closes="\n</minimax:tool_call>",
        pair='<parameter name="«key»">«value»</parameter>\n',
    ),
)
_FUNCTIONARY = Notation(
    "functionary-3.1", calls=Calls("<function=«name»>«arguments»</function>", trigger="<function=", apart="")
)
_FIREFUNCTION = Notation(
    "firefunction",
    calls=Calls(_JSON, trigger="functools[", opens="functools[", apart=", ", closes="]"),
)

_ROWS = (
    _Row(("<|channel|>",), _HARMONY),
    _Row(("<|START_ACTION|>", "<|START_RESPONSE|>"), _COMMAND_R7B),
    _Row(("<|START_ACTION|>", "<|START_TEXT|>"), _COMMAND_A),
    _Row(("Action:", "tool_name", "<|CHATBOT_TOKEN|>"), _COMMAND_R),
    _Row(("<｜tool▁calls▁begin｜>", "```json"), _DEEPSEEK_R1),
    _Row(("<｜tool▁calls▁begin｜>",), _DEEPSEEK_V3),
    _Row(("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"), _KIMI),
    _Row(("[TOOL_CALLS]", "[CALL_ID]"), _MISTRAL_IDS),
    _Row(("[TOOL_CALLS]", "[ARGS]"), _MISTRAL_ARGS),
    _Row(("[TOOL_CALLS]",), _MISTRAL),
    _Row(("<seed:tool_call>", "<function="), _SEED),
    _Row(("<minimax:tool_call>", "<invoke name="), _MINIMAX),
    _Row(("functools[",), _FIREFUNCTION),
    _Row(("<tool_call>", "</arg_key><arg_value>"), _GLM_TIGHT, unless=("<role>",)),
    _Row(("<tool_call>", "<arg_key>", "<arg_value>"), _GLM, unless=("<role>",)),
    _Row(("<tool_call>", "<function=", "<parameter="), _QWEN_CODER),
    _Row(("<tool_calls>[",), Notation("apriel", calls=_list("<tool_calls>", "</tool_calls>"))),
    _Row(("<TOOLCALL>[",), Notation("nemotron", calls=_list("<TOOLCALL>", "</TOOLCALL>"))),
    _Row(("<|tool_call|>", "<|/tool_call|>"), Notation("phi-4", calls=_list("<|tool_call|>", "<|/tool_call|>"))),
    _Row(("<|tool_call|>",), Notation("granite", calls=_list("<|tool_call|>", ""))),
    _Row(("<tool_call>", '"name"', '"arguments"'), Notation("hermes", calls=Calls(_TAGGED, "<tool_call>"))),
    _Row(("<tool_call>", '\\"name\\"', '\\"arguments\\"'), Notation("hermes", calls=Calls(_TAGGED, "<tool_call>"))),
    _Row(("<function=", "</function>"), _FUNCTIONARY, unless=("<parameter",)),
    _Row(("<|start_header_id|>", '{"name": "', '"parameters": '), _LLAMA_3),
)  # fmt: skip

_THOUGHTS = (
    Thought("<think>", "</think>"),
    Thought("[THINK]", "[/THINK]"),
    Thought("<seed:think>", "</seed:think>"),
)


def recognise(template: str) -> Notation:
    """The notation of the model that a template is for."""
    notation = next((row.notation for row in _ROWS if row.fits(template)), GENERIC)
    if notation.thought is not None:
        return notation
    # Thoughts are told apart for themselves: families of calls have members with and without.
    thought = next((thought for thought in _THOUGHTS if thought.closes in template), None)
    return replace(notation, thought=thought)


def notations() -> Iterator[Notation]:
    """All of them, as they stand in the table."""
    yield GENERIC
    for row in _ROWS:
        yield row.notation
