"""Answers of every family, read whole and in all kinds of pieces."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.api.chat_parser import ChatParser, PlainParser
from llamad.api.deltas import CallArguments, CallBegun, Content, Delta, Reasoning
from llamad.api.families import notations
from llamad.api.message import AssistantMessage, assembled
from llamad.api.notation import Notation, Thought
from llamad.api.notations import GENERIC
from llamad.api.tools import Tool
from tests.api.chat_answers import ANSWERS, Answer

FAMILIES = {notation.name: notation for notation in notations()}
TEXT = {"type": "string"}
TOOLS = (
    Tool("weather", "", {"type": "object", "properties": {"city": TEXT, "days": {"type": "integer"}}}),
    Tool("weather_map", "", {"type": "object", "properties": {"zoom": {"type": "number"}, "area": {}}}),
    Tool("now", "", {}),
)
THINK = Thought("<think>", "</think>")


def read(notation: Notation, pieces: Iterable[str], tools: Sequence[Tool] = TOOLS, **how) -> list[Delta]:
    ids = iter(range(1000))
    parser = ChatParser(notation, tools, make_id=lambda size: f"id{next(ids)}", **how)
    deltas = [delta for piece in pieces for delta in parser.push(piece)]
    return deltas + parser.finish()


def message(notation: Notation, *pieces: str, **how) -> AssistantMessage:
    return assembled(read(notation, pieces, **how))


def joined(deltas: Iterable[Delta]) -> list[Delta]:
    """Neighbours of one kind put together: what does not depend on how the text was cut."""
    whole: list[Delta] = []
    for delta in deltas:
        match whole[-1:], delta:
            case [Content(before)], Content(text):
                whole[-1] = Content(before + text)
            case [Reasoning(before)], Reasoning(text):
                whole[-1] = Reasoning(before + text)
            case [CallArguments(index, before)], CallArguments(same, text) if index == same:
                whole[-1] = CallArguments(index, before + text)
            case _:
                whole.append(delta)
    return whole


def notation_of(answer: Answer) -> Notation:
    notation = FAMILIES[answer.family]
    return notation if notation.thought else Notation(**{**vars(notation), "thought": THINK})


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer.family}: {answer.what}")
def test_an_answer_is_what_the_family_means_by_it(answer: Answer) -> None:
    said = message(notation_of(answer), answer.text, begun=answer.begun)
    calls = [(call.name, json.loads(call.arguments)) for call in said.calls]
    assert (said.reasoning, said.content, calls) == (answer.reasoning, answer.content, answer.calls)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer.family}: {answer.what}")
def test_every_cut_in_two_and_every_single_character_give_the_same(answer: Answer) -> None:
    notation, text = notation_of(answer), answer.text
    whole = joined(read(notation, [text], begun=answer.begun))
    assert joined(read(notation, text, begun=answer.begun)) == whole
    for cut in range(len(text)):
        assert joined(read(notation, [text[:cut], text[cut:]], begun=answer.begun)) == whole


def _fragments() -> st.SearchStrategy[tuple[Notation, str]]:
    """Nonsense of the right kind: marks, halves of marks, names, brackets, blanks and prose in any order."""

    def texts(notation: Notation) -> st.SearchStrategy[tuple[Notation, str]]:
        marks = [*notation.marks(), "<think>", "</think>", "weather", "weather_map", "now"]
        bits = [
            *marks,
            *(mark[: len(mark) // 2] for mark in marks),
            *(mark[len(mark) // 2 :] for mark in marks),
        ]
        bits += [
            "{",
            "}",
            "[",
            "]",
            '"',
            "\\",
            '{"a": 1}',
            '{"city": "}"}',
            " ",
            "\n",
            "Hello",
            ": ",
            "ü",
            "\U0001f98a",
        ]
        chosen = st.lists(st.sampled_from(bits), max_size=14)
        return chosen.map(lambda some: (notation, "".join(some)))

    return st.sampled_from(list(FAMILIES.values())).flatmap(texts)


@given(_fragments(), st.lists(st.integers(0, 200), max_size=6), st.booleans(), st.booleans())
def test_nonsense_is_read_the_same_however_it_is_cut(
    sample: tuple[Notation, str], cuts: list[int], apart: bool, think: bool
) -> None:
    notation, text = sample
    if think and notation.thought is None:
        notation = Notation(**{**vars(notation), "thought": THINK})
    how = {"apart": apart, "inline": not apart}
    bounds = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    pieces = [text[start:end] for start, end in itertools.pairwise(bounds)]
    assert joined(read(notation, pieces, **how)) == joined(read(notation, [text], **how))


@given(_fragments())
def test_calls_are_numbered_and_have_arguments_after_their_beginning(sample: tuple[Notation, str]) -> None:
    begun: list[int] = []
    for delta in read(*sample):
        if isinstance(delta, CallBegun):
            assert delta.index == len(begun)
            begun.append(delta.index)
        elif isinstance(delta, CallArguments):
            assert delta.index == begun[-1]


@given(st.text(alphabet=st.sampled_from('<tool_call>{}"name: weather\n'), max_size=60))
def test_without_a_call_nothing_is_lost(text: str) -> None:
    said = message(GENERIC, text)
    if not said.calls:
        assert "".join(said.content.split()) == "".join(text.split())


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "Use <tool_call> like this.",
        "<tool_call>\n",
        '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "weather"}\n</tool_call>',
        '<tool_call>\n{"name": "weather", "arguments": 5}',
        '<tool_call>{"name": "weath',
        "a <tool_cal",
        "if (a <",
        "  two blanks\n",
    ],
)
def test_what_is_no_call_stays_content_to_the_letter(text: str) -> None:
    assert message(GENERIC, text) == AssistantMessage(text)


def test_a_call_may_follow_what_was_none() -> None:
    said = message(GENERIC, 'Not <tool_call> but <tool_call>{"name":"now","arguments":{}}</tool_call>')
    assert said.content == "Not <tool_call> but"
    assert [call.name for call in said.calls] == ["now"]


def test_arguments_come_as_they_are_written() -> None:
    deltas = read(
        GENERIC, ['<tool_call>{"name": "weather", "arguments": {"ci', 'ty": "Ro', 'me"}}</tool_call>']
    )
    assert deltas == [
        CallBegun(0, "id0", "weather"),
        CallArguments(0, '{"ci'),
        CallArguments(0, 'ty": "Ro'),
        CallArguments(0, 'me"}'),
    ]


def test_a_text_among_pairs_comes_as_it_is_written() -> None:
    deltas = read(FAMILIES["glm-4.5"], ["<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ro", "me"])
    assert deltas[:4] == [
        CallBegun(0, "id0", "weather"),
        CallArguments(0, '{"city": '),
        CallArguments(0, '"'),
        CallArguments(0, "Ro"),
    ]
    assert assembled(deltas).calls[0].arguments == '{"city": "Rome"}'


def test_an_answer_that_was_cut_off_keeps_what_there_is() -> None:
    said = message(GENERIC, '<tool_call>{"name": "weather", "arguments": {"city": "Ro')
    assert [(call.name, call.arguments) for call in said.calls] == [("weather", '{"city": "Ro')]


def test_half_of_what_closes_a_call_is_nothing_to_tell() -> None:
    text = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    for size in range(text.index("{}") + 2, len(text)):
        assert message(GENERIC, text[:size]).content == ""


def test_without_tools_calls_are_content() -> None:
    text = '<tool_call>{"name":"now","arguments":{}}</tool_call>'
    assert message(GENERIC, text, tools=()) == AssistantMessage(text)


def test_ids_have_the_length_of_the_family() -> None:
    for name, size in (("hermes", 32), ("mistral-args", 9)):
        text = {
            "hermes": '<tool_call>{"name":"now","arguments":{}}',
            "mistral-args": "[TOOL_CALLS]now[ARGS]{}",
        }
        ids = [
            delta.id
            for delta in ChatParser(FAMILIES[name], TOOLS).push(text[name])
            if isinstance(delta, CallBegun)
        ]
        assert [len(id) for id in ids] == [size]
        assert ids[0].isalnum()


# ---- thoughts

THINKING = Notation("thinking", THINK)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>hm</think>so", "hm", "so"),
        ("\n<think>\n hm \n\n hm\n</think>\n\nso\n", "hm \n\n hm", "so\n"),
        ("<think></think>\n\nso", "", "so"),
        ("<think>never ends \n", "never ends \n", ""),
        ("so <think>hm</think>", "", "so <think>hm</think>"),
        ("<thin", "", "<thin"),
        ("<think>a</thin", "a</thin", ""),
        ("no thought", "", "no thought"),
    ],
)
def test_a_thought_is_told_apart(text: str, reasoning: str, content: str) -> None:
    assert message(THINKING, text) == AssistantMessage(content, reasoning)
    assert message(THINKING, *text) == AssistantMessage(content, reasoning)


def test_a_thought_that_the_prompt_began() -> None:
    assert message(THINKING, "hm\n</think>\nso", begun="<think>\n") == AssistantMessage("so", "hm")


def test_thoughts_may_be_content_instead_or_too() -> None:
    text = "<think>\nhm\n</think>\n\nso"
    assert message(THINKING, text, apart=False, inline=True) == AssistantMessage(text)
    assert message(THINKING, text, inline=True) == AssistantMessage(text, "hm")
    begun = {"begun": "<think>\n", "inline": True}
    assert message(THINKING, text[8:], **begun) == AssistantMessage(text, "hm")


def test_a_mark_of_calls_in_a_thought_is_thought() -> None:
    notation = Notation(**{**vars(GENERIC), "thought": THINK})
    text = '<think>a <tool_call>?</think><tool_call>{"name":"now","arguments":{}}</tool_call>'
    said = message(notation, text)
    assert (said.reasoning, said.content, len(said.calls)) == ("a <tool_call>?", "", 1)


def test_plain_text_is_not_looked_at() -> None:
    parser = PlainParser()
    assert [parser.push("<think>"), parser.push(""), parser.finish()] == [[Content("<think>")], [], []]
