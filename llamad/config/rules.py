"""Request rules of a model in models.ini: parameters of its requests that are defaulted, forced or removed. Pure.

default.temperature = 0.2        ; where a request does not say it
force.max_tokens = 256           ; whatever a request says
remove = user, metadata          ; never reaches the model
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from llamad.config.option import Option, Scope
from llamad.config.settings import OptionValue, RequestRules
from llamad.config.values import Json

DEFAULT = "default."
FORCE = "force."
PREFIXES = (DEFAULT, FORCE)
# The name decides where a request goes, and has done so before any rule is looked at.
FIELD = r"(?!model$)[A-Za-z_][A-Za-z0-9_]{0,63}"


_NUMBER, _WHOLE, _FLAG = "a number", "a whole number", "true or false"
# fmt: off
_NUMBERS = (
    "temperature", "dynatemp_range", "dynatemp_exponent", "top_p", "min_p", "top_n_sigma", "xtc_probability",
    "xtc_threshold", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier",
    "dry_base", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay",
)
_COUNTS = (
    "seed", "top_k", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "mirostat", "min_keep",
    "max_tokens", "max_completion_tokens", "n_predict", "id_slot", "n_probs", "top_logprobs",
)
# fmt: on
_TAKES: Mapping[str, str] = {
    **dict.fromkeys(_NUMBERS, _NUMBER),
    **dict.fromkeys(_COUNTS, _WHOLE),
    **dict.fromkeys(("ignore_eos", "cache_prompt", "stream"), _FLAG),
}
"""Parameters that everybody reads in one way. A wrong type would be every client's error, and none's fault."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A JSON value, as `Json` has it, of the type that its parameter `takes`; null stands for unset. Ranges are not checked."""

    takes: str
    hint: str = "JSON"

    def parse(self, text: str) -> str:
        said = Json().parse(text)
        value = json.loads(said)
        if value is not None and not _is(self.takes, value):
            raise ValueError(f"{text!r} is not {self.takes}")
        return said

    def render(self, value: OptionValue) -> str:
        return str(value)


def _is(takes: str, value: object) -> bool:
    if isinstance(value, bool) or takes == _FLAG:
        return isinstance(value, bool) and takes == _FLAG
    # JSON does not tell 5 from 5.0.
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole or (takes == _NUMBER and isinstance(value, float))


def option(spelling: str) -> Option:
    """`default.FIELD` or `force.FIELD`: rows without end, as there are for `env.NAME`. ValueError for a bad FIELD."""
    prefix, _, field = spelling.partition(".")
    if not re.fullmatch(FIELD, field):
        raise ValueError(
            f"cannot use '{spelling}': write {prefix}.FIELD with a parameter of the request, other than model"
        )
    kind = Parameter(_TAKES[field]) if field in _TAKES else Json()
    return Option(spelling, kind, "a parameter of the model's requests", Scope.MODEL)


def is_rule(name: str) -> bool:
    """Whether the option of this canonical name is a request rule."""
    return name == "remove" or name.startswith(PREFIXES)


def build(values: Mapping[str, OptionValue]) -> RequestRules:
    """The rules among the options of one merged layer."""
    removed = values.get("remove", ())
    return RequestRules(
        default=_values(values, DEFAULT),
        force=_values(values, FORCE),
        remove=tuple(dict.fromkeys(removed)) if isinstance(removed, tuple) else (),
    )


def _values(values: Mapping[str, OptionValue], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): str(value)
        for name, value in sorted(values.items())
        if name.startswith(prefix)
    }
