"""Which chat template an instance uses: the operator's, the model's own, or ChatML."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from llamad.api.conversation import Conversation
from llamad.api.families import recognise
from llamad.api.generation import Generation
from llamad.api.notation import Spelling, possible_tokens
from llamad.api.notations import UNREAD
from llamad.api.template import CHATML, CHATML_END, ChatTemplate
from llamad.api.turn import Turn, plan_turn, prompt_of
from llamad.child.chat_options import ChatOptions
from llamad.engine.vocabulary import ModelFacts
from llamad.errors import LlamadError

log = logging.getLogger(__name__)

TEMPLATE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Voice:
    """A template, and how the model writes thoughts and calls, as the template tells."""

    template: ChatTemplate
    spelling: Spelling


@dataclass(frozen=True, slots=True)
class Chat:
    """How conversations become prompts, and how answers are read.

    `with_tools`: for requests that have some, where the model has a template for them. `stops` end an answer where the
    template's own end mark is no token.
    """

    plain: Voice
    with_tools: Voice
    options: ChatOptions = field(default_factory=ChatOptions)
    stops: tuple[str, ...] = ()

    @property
    def template(self) -> ChatTemplate:
        """The one to show."""
        return self.plain.template

    def turn(self, conversation: Conversation, generation: Generation) -> Turn:
        """The model's turn in this conversation, for all chat dialects (`llamad.api.turn`). Raises RequestError."""
        voice, stopped = self._voice(conversation), generation.ended_by(self.stops)
        thinking = self.options.thinking
        return plan_turn(self._own(conversation), stopped, voice.template, voice.spelling, thinking)

    def prompt(self, conversation: Conversation) -> str:
        """What the model is given in that turn."""
        voice, thinking = self._voice(conversation), self.options.thinking
        return prompt_of(self._own(conversation), voice.template, voice.spelling.notation, thinking)

    def _voice(self, conversation: Conversation) -> Voice:
        return self.with_tools if conversation.toolbox.tools else self.plain

    def _own(self, conversation: Conversation) -> Conversation:
        """The conversation with what the model's options say of all."""
        options = self.options
        if not options.prefill and not conversation.continued:
            conversation = conversation.without_prefill()
        return replace(conversation, variables={**options.variables, **conversation.variables})


def choose_chat(options: ChatOptions, facts: ModelFacts, control_token: Callable[[str], int | None]) -> Chat:
    """The operator's template, the model's own, or ChatML. Raises LlamadError if the operator's cannot be used.

    `control_token`: the control token that a text is, if it is one.
    """
    make = functools.partial(
        ChatTemplate, bos_token=facts.bos_token, eos_token=facts.eos_token, add_bos=facts.add_bos
    )

    def voice(template: ChatTemplate) -> Voice:
        notation = recognise(template.source) if options.parse else UNREAD
        tokens = {text: control_token(text) for text in possible_tokens(notation)}
        return Voice(
            template, Spelling(notation, {text: id for text, id in tokens.items() if id is not None})
        )

    given = read_template(options)
    template, stops = _template(make, given, facts)
    plain = with_tools = voice(template)
    if facts.tools_template and not given:
        try:
            with_tools = voice(make(facts.tools_template))
        except LlamadError as error:
            log.warning("%s; using the other one for tools, too", error.message)
    return Chat(plain, with_tools, options, stops)


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
