"""Request rules of a model in models.ini: parameters of its requests that are defaulted, forced or removed. Pure.

default.temperature = 0.2        ; where a request does not say it
force.max_tokens = 256           ; whatever a request says
remove = user, metadata          ; never reaches the model
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from llamad.config.option import Option, Scope
from llamad.config.settings import OptionValue, RequestRules
from llamad.config.values import Json

DEFAULT = "default."
FORCE = "force."
PREFIXES = (DEFAULT, FORCE)
# The name decides where a request goes, and has done so before any rule is looked at.
FIELD = r"(?!model$)[A-Za-z_][A-Za-z0-9_]{0,63}"


def option(spelling: str) -> Option:
    """`default.FIELD` or `force.FIELD`: rows without end, as there are for `env.NAME`. ValueError for a bad FIELD."""
    prefix, _, field = spelling.partition(".")
    if not re.fullmatch(FIELD, field):
        raise ValueError(
            f"cannot use '{spelling}': write {prefix}.FIELD with a parameter of the request, other than model"
        )
    return Option(spelling, Json(), "a parameter of the model's requests", Scope.MODEL)


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
