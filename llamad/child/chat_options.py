"""What an instance's options say of chats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from llamad.api.thinking import Thinking


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """`template`: the operator's chat template, "" for the model's own; `template_file`: where it stands.

    `variables`: what templates are given beside the request's. `thinking`: where requests do not say. `prefill`: a last
    message of the assistant is gone on with. `parse`: thoughts and calls are told apart from content.
    """

    template: str = ""
    template_file: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    thinking: Thinking = field(default_factory=Thinking)
    prefill: bool = True
    parse: bool = True


def parse_chat_options(options: Mapping[str, Any]) -> ChatOptions:
    """Options by their long names. Raises ValueError for what no supervisor should have sent."""
    variables = msgspec.json.decode(options.get("chat-template-kwargs") or "{}", type=dict[str, Any])
    effort, preserve = options.get("reasoning-effort", "default"), options.get("reasoning-preserve")
    if effort not in ("default", "none"):
        variables["reasoning_effort"] = effort
    if preserve is not None:
        variables["preserve_reasoning"] = preserve
    return ChatOptions(
        str(options.get("chat-template") or ""),
        str(options.get("chat-template-file") or ""),
        variables,
        Thinking(
            options.get("reasoning-format", "auto"),
            False if effort == "none" else _enabled(options.get("reasoning", "auto"), variables),
            options.get("reasoning-budget", -1),
            options.get("reasoning-budget-message") or None,
        ),
        options.get("prefill-assistant", True) is not False,
        not options.get("skip-chat-parsing", False),
    )


def _enabled(reasoning: str, variables: Mapping[str, Any]) -> bool | None:
    """An option of its own says more than a variable among others."""
    if reasoning != "auto":
        return reasoning == "on"
    enabled = variables.get("enable_thinking")
    return enabled if isinstance(enabled, bool) else None
