"""Answers as the families' models write them, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ROME = ("weather", {"city": "Rome"})
OSLO = ("weather", {"city": "Oslo", "days": 3})


@dataclass(frozen=True)
class Answer:
    """A text of a family's model. `begun`: the end of its prompt, as far as the model goes on from a mark there."""

    family: str
    what: str
    text: str
    calls: list[tuple[str, Any]] = field(default_factory=list)
    content: str = ""
    reasoning: str = ""
    begun: str = ""
    loose: bool = False
    """Not as the family writes it, but as its models may, where nothing keeps them from it."""


_R1 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
_V3 = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
_DEEPSEEK = "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>"
_ROME, _OSLO = '{"city": "Rome"}', '{"city": "Oslo", "days": 3}'

ANSWERS = (
    Answer("hermes", "text", "Hello\n there ", content="Hello\n there "),
    Answer(
        "hermes",
        "a call",
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>',
        [ROME],
    ),
    Answer(
        "hermes",
        "thought, text and calls",
        "<think>\nTwo cities.\n</think>\n\nI look.\n\n"
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}\n</tool_call>\n',
        [ROME, OSLO],
        content="I look.",
        reasoning="Two cities.",
    ),
    Answer(
        "hermes",
        "a thought that the prompt began",
        'Rome.\n</think>\n\n<tool_call>{"name":"weather","arguments":{"city":"Rome"}}</tool_call>',
        [ROME],
        reasoning="Rome.",
        begun="<think>\n",
        loose=True,
    ),
    Answer(
        "hermes",
        "brackets and quotes in texts",
        '<tool_call>\n{"name": "weather", "arguments": {"city": "}]\\"</tool_call>{\\\\"}}\n</tool_call>',
        [("weather", {"city": '}]"</tool_call>{\\'})],
        loose=True,
    ),
    Answer("llama-3", "text", '{"nome": 5}', content='{"nome": 5}'),
    Answer("llama-3", "a call", '{"name": "weather", "parameters": {"city": "Rome"}}', [ROME]),
    Answer(
        "llama-3",
        "a call after its mark, and another",
        '<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}; '
        '{"name": "now", "parameters": {}}',
        [ROME, ("now", {})],
    ),
    Answer("llama-3", "an object that is no call", '{"name": "Ann"}', content='{"name": "Ann"}', loose=True),
    Answer(
        "mistral",
        "two calls",
        '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}, "id": "abcdef123"}, '
        '{"name": "weather", "arguments": {"city": "Oslo", "days": 3}, "id": "abcdef124"}]',
        [ROME, OSLO],
    ),
    Answer(
        "mistral-args",
        "text and two calls",
        f"Well. [TOOL_CALLS]weather[ARGS]{_ROME}[TOOL_CALLS]weather[ARGS]{_OSLO}",
        [ROME, OSLO],
        content="Well.",
    ),
    Answer(
        "mistral-call-id",
        "two calls",
        f"[TOOL_CALLS]weather[CALL_ID]abcdef123[ARGS]{_ROME}[TOOL_CALLS]now[CALL_ID]abcdef124[ARGS]{{}}",
        [ROME, ("now", {})],
    ),
    Answer(
        "deepseek-r1",
        "thought and two calls",
        "Both.\n</think>\n\n"
        + _DEEPSEEK.format(_R1.format("weather", _ROME) + "\n" + _R1.format("weather", _OSLO)),
        [ROME, OSLO],
        reasoning="Both.",
        begun="<think>\n",
    ),
    Answer(
        "deepseek-v3.1",
        "text and two calls",
        "I look." + _DEEPSEEK.format(_V3.format("weather", _ROME) + _V3.format("weather_map", '{"zoom": 1}')),
        [ROME, ("weather_map", {"zoom": 1})],
        content="I look.",
    ),
    Answer("harmony", "text", "<|channel|>final<|message|>Hello", content="Hello", begun="<|start|>assistant"),
    Answer(
        "harmony",
        "thought and text",
        "<|channel|>analysis<|message|>Greet.<|end|><|start|>assistant<|channel|>final<|message|>Hello",
        content="Hello",
        reasoning="Greet.",
        begun="<|start|>assistant",
    ),
    Answer(
        "harmony",
        "thought and a call",
        "<|channel|>analysis<|message|>Rome.<|end|><|start|>assistant"
        f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{_ROME}",
        [ROME],
        reasoning="Rome.",
        begun="<|start|>assistant",
    ),
    Answer(
        "harmony",
        "a call to whom the role says",
        f" to=functions.weather<|channel|>commentary json<|message|>{_ROME}",
        [ROME],
        begun="<|start|>assistant",
    ),
    Answer(
        "harmony",
        "a preamble before a call",
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
        f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{_ROME}",
        [ROME],
        content="I look.",
        begun="<|start|>assistant",
    ),
    Answer("command-r7b", "text", "<|START_RESPONSE|>Hello<|END_RESPONSE|>", content="Hello"),
    Answer(
        "command-r7b",
        "thought and calls",
        "<|START_THINKING|>Two.<|END_THINKING|><|START_ACTION|>[\n"
        '    {"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Rome"}},\n'
        '    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
        [ROME, ("now", {})],
        reasoning="Two.",
    ),
    Answer(
        "command-r",
        "a call",
        'Action:\n```json\n[\n    {\n        "tool_name": "weather",\n        "parameters": {\n'
        '            "city": "Rome"\n        }\n    }\n]```',
        [ROME],
    ),
    Answer("phi-4", "a call", '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome"}}]<|/tool_call|>', [ROME]),
    Answer("granite", "a call", '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome"}}]', [ROME]),
    Answer("apriel", "a call", '<tool_calls>[{"name": "now", "arguments": {}}]</tool_calls>', [("now", {})]),
    Answer("nemotron", "a call", '<TOOLCALL>[{"name": "now", "arguments": {}}]</TOOLCALL>', [("now", {})]),
    Answer(
        "kimi-k2",
        "two calls",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
        f"{_ROME}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{{}}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        [ROME, ("now", {})],
    ),
    Answer(
        "glm-4.5",
        "thought, text and calls",
        "\n<think>Two.</think>\nI look.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        [OSLO, ("now", {})],
        content="I look.",
        reasoning="Two.",
    ),
    Answer(
        "glm-4.5",
        "values whose type is open or wrong",
        "<tool_call>weather_map\n<arg_key>area</arg_key>\n<arg_value>[1, 2]</arg_value>\n"
        "<arg_key>zoom</arg_key>\n<arg_value>much</arg_value>\n</tool_call>",
        [("weather_map", {"area": [1, 2], "zoom": "much"})],
        loose=True,
    ),
    Answer(
        "glm-4.7",
        "two calls",
        "<tool_call>weather<arg_key>city</arg_key><arg_value>Oslo</arg_value><arg_key>days</arg_key>"
        "<arg_value>3</arg_value></tool_call><tool_call>now</tool_call>",
        [OSLO, ("now", {})],
    ),
    Answer(
        "qwen3-coder",
        "text of several lines",
        "<tool_call>\n<function=weather>\n<parameter=city>\n  Ro\n\"me\"\n\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n</function>\n</tool_call>",
        [("weather", {"city": '  Ro\n"me"\n', "days": 3})],
    ),
    Answer(
        "seed-oss",
        "a call",
        "<seed:tool_call>\n<function=weather>\n<parameter=city>Rome</parameter>\n</function>\n</seed:tool_call>",
        [ROME],
    ),
    Answer("command-a", "text", "<|START_TEXT|>Hello<|END_TEXT|>", content="Hello"),
    Answer(
        "minimax-m2",
        "two calls",
        '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Oslo</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
        [OSLO, ("now", {})],
    ),
    Answer("functionary-3.1", "a call", f"<function=weather>{_ROME}</function>", [ROME]),
    Answer(
        "firefunction",
        "text and a call",
        'I look. functools[{"name": "weather", "arguments": {"city": "Rome"}}]',
        [ROME],
        content="I look.",
    ),
    Answer(
        "gemma-4",
        "thought, text and calls",
        "<|channel>thought\nTwo.\n<channel|>I look.<|tool_call>call:weather{city:<|\"|>Rome<|\"|>}<tool_call|>"
        "<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>,days:3}<tool_call|>",
        [ROME, OSLO],
        content="I look.",
        reasoning="Two.",
    ),
    Answer(
        "gemma-4",
        "strings with anything in them, and deep values",
        '<|tool_call>call:weather_map{area:{a:[1,true,null,<|"|>"}{<|"|>],b:{}},zoom:-1.5e3}<tool_call|>',
        [("weather_map", {"area": {"a": [1, True, None, '"}{'], "b": {}}, "zoom": -1500.0})],
    ),
    Answer("gemma-4", "no arguments", "<|tool_call>call:now{}<tool_call|>", [("now", {})]),
    Answer(
        "gemma-4",
        "channels with nothing in them",
        "<|channel><|channel>thought\n<channel|>Hello\nthere<|channel>thought\n<channel|><channel|>",
        content="Hello\nthere",
        loose=True,
    ),
    Answer(
        "gemma-4",
        "quotes and blanks of JSON",
        '<|tool_call>call:weather{ <|"|>city<|"|>: <|"|>Rome<|"|> }<tool_call|>',
        [ROME],
        loose=True,
    ),
    Answer(
        "lfm-2",
        "thought, text and two calls",
        '<think>Two.</think>I look.<|tool_call_start|>[weather(city="Oslo", days=3), now()]<|tool_call_end|>',
        [OSLO, ("now", {})],
        content="I look.",
        reasoning="Two.",
    ),
    Answer(
        "lfm-2",
        "Python's words and quotes",
        "<|tool_call_start|>[weather_map(zoom=1, area={'a': [True, None, 'it\\'s \\u00e9', (1, 2)]})]<|tool_call_end|>",
        [("weather_map", {"zoom": 1, "area": {"a": [True, None, "it's \u00e9", [1, 2]]}})],
        loose=True,
    ),
    Answer("lfm-2", "single quotes", "<|tool_call_start|>[weather(city='Rome')]<|tool_call_end|>", [ROME]),
    Answer(
        "lfm-2",
        "a mark of calls in a thought",
        "<think>Use <|tool_call_start|>[now()]<|tool_call_end|>?</think><|tool_call_start|>[now()]<|tool_call_end|>",
        [("now", {})],
        reasoning="Use <|tool_call_start|>[now()]<|tool_call_end|>?",
        loose=True,
    ),
    Answer(
        "gigachat-3",
        "text and a call",
        'I look.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "weather", "arguments": {"city": "Rome"}}',
        [ROME],
        content="I look.",
    ),
    Answer("gigachat-3", "text to its end", "Hello<|message_sep|>\n\n", content="Hello"),
    Answer(
        "gigachat-3.1",
        "text and a call",
        'I look.<|function_call|>{"name": "weather", "arguments": {"city": "Rome"}}<|message_sep|>\n\n',
        [ROME],
        content="I look.",
    ),
    Answer(
        "deepseek-v3.2",
        "thought, text and two calls",
        "Both.</think>I look.\n\n<｜DSML｜function_calls>\n"
        '<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">Os<b>lo</b></｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        [("weather", {"city": "Os<b>lo</b>", "days": 3}), ("now", {})],
        content="I look.",
        reasoning="Both.",
        begun="<think>",
    ),
    Answer(
        "deepseek-v3.2",
        "kinds as they are said, not as they should be",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather_map">\n'
        '<｜DSML｜parameter name="area" string="true">[1]</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="zoom" string="false">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        [("weather_map", {"area": "[1]", "zoom": [1]})],
        loose=True,
    ),
    Answer(
        "deepseek-v4",
        "a call that ends the thought",
        "Rome.\n\n<｜DSML｜tool_calls>\n"
        '<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        [ROME],
        reasoning="Rome.",
        begun="<think>",
    ),
    Answer(
        "qwen3-coder",
        "a call that ends the thought",
        "Rome.\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
        [ROME],
        reasoning="Rome.",
        begun="<think>\n",
    ),
    Answer(
        "qwen3-coder",
        "a call whose first mark was forgotten",
        "I look.\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
        [ROME],
        content="I look.",
        loose=True,
    ),
    Answer(
        "qwen3-coder",
        "a mark of calls in a thought",
        "A <tool_call> or <function=now>?\n</think>\n\nNo.",
        content="No.",
        reasoning="A <tool_call> or <function=now>?",
        begun="<think>\n",
        loose=True,
    ),
    Answer(
        "ling-3",
        "a call that ends the thought, and another",
        "Two.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>\n"
        "<tool_call>now\n</tool_call>",
        [ROME, ("now", {})],
        reasoning="Two.",
        begun="<think>",
    ),
    Answer(
        "ling-3",
        "as its template shows calls",
        "<tool_call>weather<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>",
        [ROME],
        loose=True,
    ),
    Answer(
        "kimi-k3",
        "thought, text and two calls",
        "Two.<|close|>think<|sep|><|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|>"
        '<|open|>call tool="weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Oslo'
        '<|close|>argument<|sep|><|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
        '<|close|>call<|sep|><|open|>call tool="now" index="2"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
        "<|close|>message<|sep|>",
        [OSLO, ("now", {})],
        content="I look.",
        reasoning="Two.",
        begun="<|open|>think<|sep|>",
    ),
    Answer(
        "apertus",
        "thought, text and two calls",
        '<|inner_prefix|>Two.<|inner_suffix|>I look.<|tools_prefix|>[{"weather": {"city": "Rome"}}, {"now": {}}]'
        "<|tools_suffix|>",
        [ROME, ("now", {})],
        content="I look.",
        reasoning="Two.",
    ),
    Answer(
        "solar-open",
        "thought and two calls",
        "<|think|>Two.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>weather"
        f"<|tool_call:args|>{_ROME}<|tool_call:end|><|tool_call:begin|>a1b2c3d4e6<|tool_call:name|>now"
        "<|tool_call:args|>{}<|tool_call:end|>",
        [ROME, ("now", {})],
        reasoning="Two.",
        begun="<|begin|>assistant",
    ),
    Answer("solar-open", "text", "<|content|>Hello<|end|>", content="Hello", begun="<|begin|>assistant"),
    Answer(
        "hunyuan-3",
        "thought and two calls",
        "Two.</think:opensource><tool_calls:opensource>\n<tool_call:opensource>weather<tool_sep:opensource>\n"
        "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Oslo</arg_value:opensource>\n"
        "<arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>3</arg_value:opensource>\n"
        "</tool_call:opensource>\n<tool_call:opensource>now<tool_sep:opensource>\n</tool_call:opensource>\n"
        "</tool_calls:opensource>",
        [OSLO, ("now", {})],
        reasoning="Two.",
        begun="<think:opensource>",
    ),
    Answer(
        "minicpm-5",
        "two calls, and a text that is wrapped",
        '<function name="weather"><param name="city"><![CDATA[<b>Ro</b>\nme]]></param><param name="days">3</param>'
        '</function>\n<function name="now"></function>',
        [("weather", {"city": "<b>Ro</b>\nme", "days": 3}), ("now", {})],
    ),
    Answer(
        "minicpm-5",
        "a mark in a text that is wrapped",
        '<function name="weather"><param name="city"><![CDATA[Ro</param>me]]></param></function>',
        [("weather", {"city": "Ro</param>me"})],
        loose=True,
    ),
    Answer("minicpm-5", "text and a call", 'I look.\n<function name="weather"><param name="city">Rome</param></function>', [ROME], content="I look."),
    Answer(
        "minimax-m1",
        "two calls",
        '<tool_calls>\n{"name": "weather", "arguments": {"city": "Rome"}}\n{"name": "now", "arguments": {}}\n</tool_calls>',
        [ROME, ("now", {})],
    ),
    Answer(
        "generic",
        "a longer name that begins like another",
        '<tool_call>{"name": "weather_map", "arguments": {"zoom": 2}}</tool_call> Done.',
        [("weather_map", {"zoom": 2})],
        content="Done.",
        loose=True,
    ),
)  # fmt: skip
