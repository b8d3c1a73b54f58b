"""Which chat template an instance uses: the operator's, the model's own, or ChatML."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from llamad.api.conversation import Conversation
from llamad.api.families import UNREAD, recognise
from llamad.api.generation import Generation
from llamad.api.notation import Spelling, possible_tokens
from llamad.api.template import CHATML, CHATML_END, ChatTemplate
from llamad.api.turn import Turn, plan_turn, prompt_of
from llamad.child.chat_options import ChatOptions
from llamad.engine.vocabulary import ModelFacts
from llamad.errors import LlamadError

log = logging.getLogger(__name__)

TEMPLATE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Chat:
    """How conversations become prompts, and how answers are read.

    `spelling`: how this model writes thoughts and calls. `stops` end an answer where the template's own end mark is no
    token.
    """

    template: ChatTemplate
    spelling: Spelling
    options: ChatOptions = field(default_factory=ChatOptions)
    stops: tuple[str, ...] = ()

    def turn(self, conversation: Conversation, generation: Generation) -> Turn:
        """The model's turn in this conversation, for all chat dialects (`llamad.api.turn`). Raises RequestError."""
        thinking = self.options.thinking
        stopped = generation.with_stops(self.stops)
        return plan_turn(self._own(conversation), stopped, self.template, self.spelling, thinking)

    def prompt(self, conversation: Conversation) -> str:
        """What the model is given in that turn."""
        thinking = self.options.thinking
        return prompt_of(self._own(conversation), self.template, self.spelling.notation, thinking)

    def _own(self, conversation: Conversation) -> Conversation:
        """The conversation with what the model's options say of all."""
        options = self.options
        if not options.prefill:
            conversation = conversation.without_prefill()
        return replace(conversation, variables={**options.variables, **conversation.variables})


def choose_chat(options: ChatOptions, facts: ModelFacts, control_token: Callable[[str], int | None]) -> Chat:
    """The operator's template, the model's own, or ChatML. Raises LlamadError if the operator's cannot be used.

    `control_token`: the control token that a text is, if it is one.
    """
    make = functools.partial(
        ChatTemplate, bos_token=facts.bos_token, eos_token=facts.eos_token, add_bos=facts.add_bos
    )
    template, stops = _template(make, read_template(options), facts)
    notation = recognise(template.source) if options.parse else UNREAD
    tokens = {text: control_token(text) for text in possible_tokens(notation)}
    controls = {text: token for text, token in tokens.items() if token is not None}
    return Chat(template, Spelling(notation, controls), options, stops)


def _template(
    make: Callable[[str], ChatTemplate], given: str, facts: ModelFacts
) -> tuple[ChatTemplate, tuple[str, ...]]:
    if given and given != "chatml":
        return make(given), ()
    if facts.chat_template and not given:
        try:
            return make(facts.chat_template), ()
        except LlamadError as error:
            log.warning("%s; using ChatML instead", error.message)
    return make(CHATML), (CHATML_END,)


def read_template(options: ChatOptions) -> str:
    """The operator's template: a file, jinja2 source, or the name `chatml`; "" for none."""
    if options.template_file:
        try:
            data = Path(options.template_file).read_bytes()[:TEMPLATE_BYTES_MAX]
            return data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise LlamadError(
                f"cannot read the chat template {options.template_file}: {error}", kind="bad-template"
            ) from error
    if options.template and options.template != "chatml" and "{" not in options.template:
        raise LlamadError(
            f"cannot use chat-template {options.template[:40]!r}: expected jinja2 source or 'chatml'",
            kind="bad-template",
        )
    return options.template
