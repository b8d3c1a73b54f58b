"""Which chat template an instance uses: the operator's, the model's own, or ChatML."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from pathlib import Path

from llamad.api.conversation import Conversation
from llamad.api.generation import Generation
from llamad.api.template import CHATML, CHATML_END, ChatTemplate
from llamad.api.turn import Turn, plan_turn
from llamad.child.instance_spec import InstanceSpec
from llamad.engine.vocabulary import ModelFacts
from llamad.errors import LlamadError

log = logging.getLogger(__name__)

TEMPLATE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Chat:
    """How conversations become prompts. `stops` end an answer where the template's own end mark is no token."""

    template: ChatTemplate
    stops: tuple[str, ...] = ()

    def turn(self, conversation: Conversation, generation: Generation) -> Turn:
        """The model's turn in this conversation, for all chat dialects (`llamad.api.turn`). Raises RequestError."""
        return plan_turn(conversation, generation.with_stops(self.stops), self.template)


def choose_chat(spec: InstanceSpec, facts: ModelFacts) -> Chat:
    """The operator's template, the model's own, or ChatML. Raises LlamadError if the operator's cannot be used."""
    make = functools.partial(
        ChatTemplate, bos_token=facts.bos_token, eos_token=facts.eos_token, add_bos=facts.add_bos
    )
    given = read_template(spec)
    if given and given != "chatml":
        return Chat(make(given))
    if facts.chat_template and not given:
        try:
            return Chat(make(facts.chat_template))
        except LlamadError as error:
            log.warning("%s; using ChatML instead", error.message)
    return Chat(make(CHATML), (CHATML_END,))


def read_template(spec: InstanceSpec) -> str:
    """The operator's template: a file, jinja2 source, or the name `chatml`; "" for none."""
    if spec.template_file:
        try:
            data = Path(spec.template_file).read_bytes()[:TEMPLATE_BYTES_MAX]
            return data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise LlamadError(
                f"cannot read the chat template {spec.template_file}: {error}", kind="bad-template"
            ) from error
    if spec.template and spec.template != "chatml" and "{" not in spec.template:
        raise LlamadError(
            f"cannot use chat-template {spec.template[:40]!r}: expected jinja2 source or 'chatml'",
            kind="bad-template",
        )
    return spec.template
