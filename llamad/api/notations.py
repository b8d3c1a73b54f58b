"""How the models of each family write their thoughts and calls, a notation a family (`notation` says what it is made of).

What they say is what the family's own templates write (llama.cpp keeps a collection of them in models/templates).
"""

from __future__ import annotations

from dataclasses import replace

from llamad.api.literals import Literals
from llamad.api.notation import Calls, Notation, Thought

_JSON = '{"name": "«name»", "arguments": «arguments»}'
TAGGED = f"<tool_call>\n{_JSON}\n</tool_call>"

GENERIC = Notation("generic", calls=Calls(TAGGED, trigger="<tool_call>"), known=False)
"""For templates that know no tools, or whose notation is not known: the most common one, which the prompt then explains."""

UNREAD = Notation("unread")
"""Where answers are to be left as they are."""


def listed(trigger: str, closes: str) -> Calls:
    """One JSON array of all calls after a mark."""
    return Calls(_JSON, trigger=trigger, opens=f"{trigger}[", apart=", ", closes=f"]{closes}")


HARMONY = Notation(
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
COMMAND_R7B = Notation(
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
COMMAND_A = replace(
    COMMAND_R7B,
    name="command-a",
    frames=("<|START_TEXT|>", "<|END_TEXT|>"),
    answer=("<|START_TEXT|>", "<|END_TEXT|>"),
)
COMMAND_R = Notation(
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
DEEPSEEK_R1 = Notation(
    "deepseek-r1",
    calls=Calls(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>«name»\n```json\n«arguments»\n```<｜tool▁call▁end｜>",
        trigger=_DEEPSEEK_SECTION[0],
        opens=_DEEPSEEK_SECTION[0],
        closes=_DEEPSEEK_SECTION[1],
    ),
)
DEEPSEEK_V3 = Notation(
    "deepseek-v3.1",
    calls=Calls(
        "<｜tool▁call▁begin｜>«name»<｜tool▁sep｜>«arguments»<｜tool▁call▁end｜>",
        trigger=_DEEPSEEK_SECTION[0],
        opens=_DEEPSEEK_SECTION[0],
        apart="",
        closes=_DEEPSEEK_SECTION[1],
    ),
)
KIMI = Notation(
    "kimi-k2",
    calls=Calls(
        "<|tool_call_begin|>functions.«name»:«n»<|tool_call_argument_begin|>«arguments»<|tool_call_end|>",
        trigger="<|tool_calls_section_begin|>",
        opens="<|tool_calls_section_begin|>",
        apart="",
        closes="<|tool_calls_section_end|>",
    ),
)
MISTRAL_IDS = Notation(
    "mistral-call-id",
    calls=Calls(
        "[TOOL_CALLS]«name»[CALL_ID]«id»[ARGS]«arguments»", trigger="[TOOL_CALLS]", apart="", id_chars=9
    ),
)
MISTRAL_ARGS = Notation(
    "mistral-args",
    calls=Calls("[TOOL_CALLS]«name»[ARGS]«arguments»", trigger="[TOOL_CALLS]", apart="", id_chars=9),
)
MISTRAL = Notation(
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
LLAMA_3 = Notation(
    "llama-3",
    calls=Calls(
        '{"name": "«name»", "parameters": «arguments»}',
        trigger="<|python_tag|>",
        opens="<|python_tag|>",
        apart="; ",
        bare='{"name":',
    ),
)
GLM = Notation(
    "glm-4.5",
    calls=Calls(
        "<tool_call>«name»\n«pairs»</tool_call>",
        trigger="<tool_call>",
        pair="<arg_key>«key»</arg_key>\n<arg_value>«value»</arg_value>\n",
    ),
)
GLM_TIGHT = Notation(
    "glm-4.7",
    calls=Calls(
        "<tool_call>«name»«pairs»</tool_call>",
        trigger="<tool_call>",
        apart="",
        pair="<arg_key>«key»</arg_key><arg_value>«value»</arg_value>",
    ),
)
QWEN_CODER = Notation(
    "qwen3-coder",
    calls=Calls(
        "<tool_call>\n<function=«name»>\n«pairs»</function>\n</tool_call>",
        trigger="<tool_call>",
        pair="<parameter=«key»>\n«value»\n</parameter>\n",
        ends_thought=True,
        # Its models forget the first mark at times.
        others=("<function=«name»>\n«pairs»</function>\n</tool_call>",),
    ),
)
SEED = Notation(
    "seed-oss",
    calls=Calls(
        "<seed:tool_call>\n<function=«name»>\n«pairs»</function>\n</seed:tool_call>",
        trigger="<seed:tool_call>",
        pair="<parameter=«key»>«value»</parameter>\n",
    ),
)

MINIMAX = Notation(
    "minimax-m2",
    calls=Calls(
        '<invoke name="«name»">\n«pairs»</invoke>',
        trigger="<minimax:tool_call>",
        opens="<minimax:tool_call>\n",
        closes="\n</minimax:tool_call>",
        pair='<parameter name="«key»">«value»</parameter>\n',
    ),
)
FUNCTIONARY = Notation(
    "functionary-3.1", calls=Calls("<function=«name»>«arguments»</function>", trigger="<function=", apart="")
)
FIREFUNCTION = Notation(
    "firefunction",
    calls=Calls(_JSON, trigger="functools[", opens="functools[", apart=", ", closes="]"),
)
APERTUS = Notation(
    "apertus",
    Thought("<|inner_prefix|>", "<|inner_suffix|>", unasked=False),
    Calls(
        '{"«name»": «arguments»}',
        trigger="<|tools_prefix|>",
        opens="<|tools_prefix|>[",
        apart=", ",
        closes="]<|tools_suffix|>",
    ),
)
GEMMA_4 = Notation(
    "gemma-4",
    Thought("<|channel>thought", "<channel|>", lead="\n"),
    Calls(
        "<|tool_call>call:«name»«arguments»<tool_call|>",
        trigger="<|tool_call>",
        apart="",
        literals=Literals("{", "}", ":", ('<|"|>',), by_name=True),
    ),
    # Some of its models leave these about, with nothing between them.
    frames=("<|channel>", "<channel|>"),
    reopens=("<turn|>\n", "<|turn>model\n"),
)
LFM_2 = Notation(
    "lfm-2",
    calls=Calls(
        "«name»«arguments»",
        trigger="<|tool_call_start|>",
        opens="<|tool_call_start|>[",
        apart=", ",
        closes="]<|tool_call_end|>",
        literals=Literals("(", ")", "=", ('"', "'"), python=True),
    ),
)
GIGACHAT_3 = Notation(
    "gigachat-3",
    calls=Calls(
        f"<|message_sep|>\n\nfunction call<|role_sep|>\n{_JSON}",
        trigger="<|message_sep|>\n\nfunction call<|role_sep|>",
        apart="",
    ),
    frames=("<|message_sep|>",),
)
GIGACHAT_31 = Notation(
    "gigachat-3.1",
    calls=Calls(f"<|function_call|>{_JSON}", trigger="<|function_call|>", apart=""),
    frames=("<|message_sep|>",),
)


def dsml(section: str) -> Calls:
    """DeepSeek's markup for calls, in a section of this name."""
    return Calls(
        '<｜DSML｜invoke name="«name»">\n«pairs»</｜DSML｜invoke>',
        trigger=f"<｜DSML｜{section}>",
        opens=f"<｜DSML｜{section}>\n",
        closes=f"\n</｜DSML｜{section}>",
        pair='<｜DSML｜parameter name="«key»" string="«kind»">«value»</｜DSML｜parameter>\n',
        kinds=("true", "false"),
        ends_thought=True,
    )


LING = Notation(
    "ling-3",
    calls=Calls(
        "<tool_call>«name»\n«pairs»</tool_call>",
        trigger="<tool_call>",
        pair="<arg_key>«key»</arg_key>\n<arg_value>«value»</arg_value>\n",
        ends_thought=True,
    ),
)
HY_3 = Notation(
    "hunyuan-3",
    Thought("<think:opensource>", "</think:opensource>"),
    Calls(
        "<tool_call:opensource>«name»<tool_sep:opensource>\n«pairs»</tool_call:opensource>",
        trigger="<tool_calls:opensource>",
        opens="<tool_calls:opensource>\n",
        closes="\n</tool_calls:opensource>",
        pair="<arg_key:opensource>«key»</arg_key:opensource>\n<arg_value:opensource>«value»</arg_value:opensource>\n",
    ),
)
_SOLAR_CALL = "<|tool_call:begin|>«id»<|tool_call:name|>«name»<|tool_call:args|>«arguments»<|tool_call:end|>"
SOLAR = Notation(
    "solar-open",
    Thought("<|think|>", "<|end|>", resumes="<|begin|>assistant"),
    Calls(
        _SOLAR_CALL,
        trigger="<|tool_calls|>",
        opens="<|tool_calls|>",
        apart="",
        others=(_SOLAR_CALL,),
        id_chars=10,
    ),
    frames=("<|content|>", "<|begin|>assistant", "<|end|>", "<|calls|>"),
    answer=("<|content|>", ""),
)
KIMI_3 = Notation(
    "kimi-k3",
    Thought("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    Calls(
        '<|open|>call tool="«name»" index="«n»"<|sep|>«pairs»<|close|>call<|sep|>',
        trigger="<|open|>tools<|sep|>",
        opens="<|open|>tools<|sep|>",
        apart="",
        closes="<|close|>tools<|sep|>",
        pair='<|open|>argument key="«key»" type="«kind»"<|sep|>«value»<|close|>argument<|sep|>',
        kinds=("string", "number", "boolean", "object", "array", "null"),
        ends_thought=True,
    ),
    frames=(
        *("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        *("<|close|>message<|sep|>", "<|end_of_msg|>"),
    ),
    answer=("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
)
MINICPM_5 = Notation(
    "minicpm-5",
    calls=Calls(
        '<function name="«name»">«pairs»</function>',
        trigger='<function name="',
        pair='<param name="«key»">«value»</param>',
        wraps=("<![CDATA[", "]]>"),
    ),
)
MINIMAX_1 = Notation(
    "minimax-m1",
    calls=Calls(_JSON, trigger="<tool_calls>", opens="<tool_calls>\n", closes="\n</tool_calls>"),
)
