"""Whether a model is to think before it answers, for how long, and where its thoughts are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llamad.api.fields import Fields

FORMATS = ("auto", "none", "deepseek", "deepseek-legacy")
"""llama-server's `reasoning_format`. `none`: thoughts stay in the content, with their marks; `deepseek`: they are
`reasoning_content`; `deepseek-legacy`: both; `auto`: `deepseek`."""
MESSAGE_CHARS_MAX = 4096
BUDGET_MAX = (1 << 31) - 1
_BUDGETS = ("reasoning_budget_tokens", "thinking_budget_tokens", "reasoning_budget")


@dataclass(frozen=True, slots=True)
class Thinking:
    """None where it is left to the server, or to the template.

    `budget`: tokens that a thought may have: -1 any number, 0 none. `message`: what ends a thought that has spent them.
    `control`: the client may end it while it goes on.
    """

    format: str | None = None
    enabled: bool | None = None
    budget: int | None = None
    message: str | None = None
    control: bool = False

    def over(self, defaults: Thinking) -> Thinking:
        """What is said here, and for the rest what the defaults say."""
        return Thinking(
            self.format if self.format is not None else defaults.format,
            self.enabled if self.enabled is not None else defaults.enabled,
            self.budget if self.budget is not None else defaults.budget,
            self.message if self.message is not None else defaults.message,
            self.control or defaults.control,
        )


def parse_thinking(fields: Fields) -> tuple[Thinking, dict[str, Any]]:
    """llama-server's fields, and the variables of templates. Raises RequestError that names the field.

    `reasoning_effort` is for templates that know it, but `none` means not to think.
    """
    kwargs = fields.raw("chat_template_kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise fields.wrong("chat_template_kwargs", "an object", kwargs)
    variables = dict(kwargs or {})
    enabled = variables.get("enable_thinking")
    if enabled is not None and not isinstance(enabled, bool):
        raise fields.nested("chat_template_kwargs").wrong("enable_thinking", "true or false", enabled)
    effort = fields.text("reasoning_effort", "")
    if effort == "none":
        enabled = False
        variables.pop("reasoning_effort", None)
    elif effort:
        variables["reasoning_effort"] = effort
    chosen = fields.text("reasoning_format", "") or None
    if chosen is not None and chosen not in FORMATS:
        raise fields.wrong("reasoning_format", " or ".join(map(repr, FORMATS)), chosen)
    message = fields.text("reasoning_budget_message", "")
    if len(message) > MESSAGE_CHARS_MAX:
        raise fields.wrong("reasoning_budget_message", f"at most {MESSAGE_CHARS_MAX} characters", message)
    control = fields.flag("reasoning_control", False)
    return Thinking(chosen, enabled, _budget(fields), message or None, control), variables


def _budget(fields: Fields) -> int | None:
    for name in _BUDGETS:
        if fields.raw(name) is not None:
            return fields.integer(name, -1, -1, BUDGET_MAX)
    return None
