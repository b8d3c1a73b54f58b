"""The model's turn in a conversation: from messages and tools to prompt, rules, and the reader of what it answers.

**All chat dialects use this one function.** OpenAI's chat and responses and Anthropic's messages make a `Conversation`
of their requests (`llamad.api.conversation`, `llamad.api.tools`, `llamad.api.thinking`) and get a `Turn`:

    turn = await service.turn(body, conversation, generation)    # plan_turn with what is known of the model
    tokens = await service.prompt_tokens((turn.prompt,))
    ... generate `tokens` as turn.generation says (it carries rules, stops, and the control tokens to be shown) ...
    parser = turn.make_parser()        # one for each sequence
    deltas = parser.push(text.text)    # of every Text that the engine gives, and in the end:
    deltas = parser.finish()

A whole answer goes through the same parser: `llamad.api.message.read_message(turn.make_parser(), text)`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from llamad.api.chat_parser import ChatParser, PlainParser
from llamad.api.chat_rules import Demands, chat_rules
from llamad.api.conversation import Conversation
from llamad.api.deltas import Parser
from llamad.api.generation import Generation
from llamad.api.notation import Notation, Spelling
from llamad.api.template import ChatTemplate
from llamad.api.thinking import BUDGET_MAX, Thinking
from llamad.api.tool_words import describe, spell_out
from llamad.api.traits import keeping_thoughts
from llamad.engine.vocabulary import Rules, ThoughtLimit, Word
from llamad.errors import RequestError


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model is given, how it generates, and how its words are read."""

    prompt: str
    generation: Generation
    make_parser: Callable[[], Parser]


def plan_turn(
    conversation: Conversation,
    generation: Generation,
    template: ChatTemplate,
    spelling: Spelling,
    defaults: Thinking,
) -> Turn:
    """`defaults`: what holds where the conversation says nothing of thinking.

    Raises RequestError where the template refuses the conversation, or what is asked for cannot be honoured.
    """
    notation, thinking = spelling.notation, conversation.thinking.over(defaults)
    tools = conversation.toolbox.usable if notation.calls is not None else ()
    if tools and generation.rules is not None and generation.rules.kind == "gbnf":
        raise RequestError(
            "cannot follow a grammar where tools may be called",
            kind="bad-field",
            details={"param": "grammar"},
        )
    prompt = prompt_of(conversation, template, notation, defaults)
    state, begun = _state(prompt, conversation, notation, thinking)
    rules = generation.rules
    if tools or thinking.budget == 0 or (rules is not None and _embeds(rules, notation, state)):
        toolbox = conversation.toolbox
        demands = Demands(
            tools,
            toolbox.choice == "required",
            template.traits.tells_several if toolbox.parallel is None else toolbox.parallel,
            state,
            thinking.budget == 0 and state != "off",
            rules,
        )
        rules = chat_rules(spelling, demands) or rules
    parser: Callable[[], Parser] = PlainParser
    if tools or notation.thought is not None or notation.frames:
        apart = thinking.format != "none"
        inline = thinking.format in ("none", "deepseek-legacy")
        parser = functools.partial(ChatParser, notation, tools, begun=begun, apart=apart, inline=inline)
    shown = tuple((id, mark.encode()) for mark, id in spelling.controls.items())
    limit = _limit(thinking, state, notation if tools else replace(notation, calls=None), template)
    return Turn(prompt, replace(generation, rules=rules, shown=shown, thought=limit), parser)


def prompt_of(
    conversation: Conversation, template: ChatTemplate, notation: Notation, defaults: Thinking
) -> str:
    """What the model is given: llama-server's prompt, and where the template knows no tools, a description of them."""
    toolbox, traits = conversation.toolbox, template.traits
    messages, tools = list(conversation.messages), toolbox.documents()
    if notation.calls is not None and not (notation.known and traits.tells_calls):
        messages = spell_out(messages, notation.calls, results=notation.known and traits.tells_results)
    if tools and notation.calls is not None and not (notation.known and traits.tells_tools):
        messages, tools = describe(messages, tools, notation.calls), []
    thinking = conversation.thinking.over(defaults)
    variables = _variables(conversation, notation, thinking)
    render = functools.partial(template.render, messages, tools, variables=variables)
    text = render(add_generation_prompt=conversation.add_generation_prompt)
    if conversation.goes_on:
        return _gone_on(text, render(add_generation_prompt=False), conversation, template, notation)
    closed, opened = notation.reopens
    if closed and conversation.add_generation_prompt and text.endswith(closed):
        text += opened
    thought = notation.thought
    if thinking.budget == 0 and thought is not None and text.rstrip().endswith(thought.opens):
        return text + template.traits.thought_frame(thought.opens, thought.closes)[1]
    return text


def _variables(conversation: Conversation, notation: Notation, thinking: Thinking) -> dict[str, Any]:
    """What templates may ask for, under all names that they have for it."""
    thought, given = notation.thought, conversation.variables
    asked = thinking.enabled if thinking.enabled is not None else thought is not None and thought.unasked
    enabled = asked and thinking.budget != 0 and thought is not None
    variables: dict[str, Any] = {"enable_thinking": enabled}
    keep, effort = given.get("preserve_reasoning", True), given.get("reasoning_effort")
    if isinstance(keep, bool):
        variables |= keeping_thoughts(keep)
    if isinstance(effort, str):
        variables["reasoning_strength"] = effort
    variables |= given
    if thinking.enabled is not None or thinking.budget == 0:
        variables["enable_thinking"] = enabled
    return variables


def _gone_on(
    text: str, closed: str, conversation: Conversation, template: ChatTemplate, notation: Notation
) -> str:
    """The prompt of an answer that has begun. `text` and `closed`: with and without the mark of a new answer."""
    thought = notation.thought
    if thought is None or not (thought.unasked or conversation.thought):
        return text + conversation.prefill
    pairs = enumerate(zip(text, closed, strict=False))
    size = next((at for at, pair in pairs if pair[0] != pair[1]), len(closed))
    if text.rstrip().endswith(thought.opens):
        size = min(size, text.rindex(thought.opens))
    head = text[:size] + text[size:].partition(thought.opens)[0]
    if thought.bare and not conversation.thought:
        return head + thought.closes + conversation.prefill
    opening, closing = template.traits.thought_frame(thought.opens + thought.lead, thought.closes)
    head += opening + conversation.thought
    if not conversation.prefill:
        return head
    if thought.resumes:
        closing = thought.closes + thought.resumes + notation.answer[0]
    return head + closing + conversation.prefill


def _state(
    prompt: str, conversation: Conversation, notation: Notation, thinking: Thinking
) -> tuple[str, str]:
    """(what the model's thinking is at: `begun`, `free` or `off`, the end of the prompt that the parser goes on from)."""
    thought = notation.thought
    if thought is None:
        return "off", ""
    if conversation.goes_on:
        return ("off", "") if conversation.prefill else ("begun", thought.opens)
    end = prompt.rstrip()
    if end.endswith(thought.opens):
        return "begun", prompt[prompt.rindex(thought.opens) :]
    if thought.resumes and end.endswith(thought.resumes):
        return "free", thought.resumes
    if thinking.enabled is False or end.endswith(thought.closes):
        return "off", ""
    return "free", ""


def _limit(thinking: Thinking, state: str, notation: Notation, template: ChatTemplate) -> ThoughtLimit | None:
    """How long the model may think; no thought at all is a matter of rules."""
    thought = notation.thought
    budget = BUDGET_MAX if thinking.budget is None or thinking.budget < 0 else thinking.budget
    if thought is None or state == "off" or not budget or (budget == BUDGET_MAX and not thinking.control):
        return None
    closing = (
        thought.closes if notation.frames else template.traits.thought_frame(thought.opens, thought.closes)[1]
    )
    opens = "" if state == "begun" else thought.opens
    enough = Word() if thinking.control else None
    ending, calls = (thinking.message or "") + closing, notation.calls
    others = (calls.trigger,) if calls is not None and calls.ends_thought else ()
    return ThoughtLimit(budget, opens, thought.closes, ending, enough, others)


def _embeds(rules: Rules, notation: Notation, state: str) -> bool:
    """Does anything come before or after what conforms to these rules? A grammar of the client's is for the whole answer,
    unless that has begun with a thought."""
    if rules.kind == "gbnf":
        return state == "begun"
    return state != "off" or any(notation.answer)
