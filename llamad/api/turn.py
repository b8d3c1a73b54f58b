"""The model's turn in a conversation: from messages and tools to prompt, rules, and the reader of what it answers.

**All chat dialects use this one function.** OpenAI's chat and responses and Anthropic's messages make a `Conversation`
of their requests (`llamad.api.conversation`, `llamad.api.tools`) and get a `Turn`:

    turn = service.chat.turn(conversation, generation)      # plan_turn with the model's own template
    tokens = await service.prompt_tokens((turn.prompt,))
    ... generate `tokens` as turn.generation says (it carries the rules, and all stops) ...
    parser = turn.make_parser()        # one for each sequence
    deltas = parser.push(text.text)    # of every Text that the engine gives, and in the end:
    deltas = parser.finish()

A whole answer goes through the same parser: `llamad.api.message.read_message(turn.make_parser(), text)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llamad.api.chat_parser import PlainParser
from llamad.api.conversation import Conversation
from llamad.api.deltas import Parser
from llamad.api.generation import Generation
from llamad.api.template import ChatTemplate
from llamad.api.unsupported import unsupported


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model is given, how it generates, and how its words are read."""

    prompt: str
    generation: Generation
    make_parser: Callable[[], Parser]


def plan_turn(conversation: Conversation, generation: Generation, template: ChatTemplate) -> Turn:
    """Raises RequestError where the template refuses the conversation, or what is asked for cannot be honoured."""
    if conversation.toolbox.choice == "required":
        raise unsupported("tool_choice", "calls cannot be required yet")
    return Turn(template.render(conversation), generation, PlainParser)
