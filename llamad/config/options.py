"""The option table: every option llamad knows, once.

Command line, INI keys, environment, `--help`, the check of a reload and the documentation all come from these rows.
An option has one canonical name, llama-server's last long spelling without dashes, and any number of other
spellings: short (`c`, `ngl`), older long ones, environment names, and for flags the ones that say no (`no-mmap`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from llamad.config import (
    rows_cache,
    rows_chat,
    rows_daemon,
    rows_embed,
    rows_endpoints,
    rows_front,
    rows_instance,
    rows_later,
    rows_lora,
    rows_model,
    rows_sampling,
    rows_speculation,
    rules,
)
from llamad.config.option import Option, Scope
from llamad.config.values import Text

ROWS: tuple[Option, ...] = (
    *rows_daemon.ROWS,
    *rows_front.ROWS,
    *rows_instance.ROWS,
    *rows_chat.ROWS,
    *rows_lora.ROWS,
    *rows_cache.ROWS,
    *rows_embed.ROWS,
    *rows_speculation.ROWS,
    *rows_sampling.ROWS,
    *rows_endpoints.ROWS,
    *rows_model.ROWS,
    *rows_later.ROWS,
)

DAEMON_SCOPES = (Scope.DAEMON, Scope.INSTANCE)
"""What the command line, the environment and llamad.ini may set."""
PRESET_SCOPES = (Scope.MODEL, Scope.INSTANCE)
"""What models.ini may set."""

_ENV_KEY = re.compile(r"env\.([A-Za-z_][A-Za-z0-9_]*)")


@cache
def by_spelling(scopes: tuple[Scope, ...]) -> Mapping[str, Option]:
    """Every spelling that is valid in `scopes`."""
    found = {spelling: row for row in ROWS if row.scope in scopes for spelling in row.spellings()}
    return MappingProxyType(found)


@cache
def by_env(scopes: tuple[Scope, ...]) -> Mapping[str, Option]:
    """Every environment name that is valid in `scopes`."""
    found = {name: row for row in ROWS if row.scope in scopes and not row.action for name in row.env_names}
    return MappingProxyType(found)


@cache
def by_setting() -> Mapping[str, Option]:
    """The daemon options by the field of Settings that they fill."""
    return MappingProxyType({row.setting: row for row in ROWS if row.setting})


def lookup(spelling: str, scopes: tuple[Scope, ...], dashes: str = "") -> Option:
    """The option of a spelling. ValueError tells what is wrong with it, and what it may have been meant to be.

    `dashes` stood before it; they are shown again.
    """
    known = by_spelling(scopes)
    if spelling in known:
        return known[spelling]
    if Scope.MODEL in scopes and spelling.startswith("env."):
        return _environment_option(spelling)
    if Scope.MODEL in scopes and spelling.startswith(rules.PREFIXES):
        return rules.option(spelling)
    shown = f"'{dashes}{spelling}'"
    elsewhere = by_spelling(tuple(Scope)).get(spelling)
    if elsewhere is not None and elsewhere.honoured is not None:
        raise ValueError(f"cannot honour option {shown} yet")
    if elsewhere is not None and elsewhere.scope is Scope.DAEMON:
        raise ValueError(f"cannot set {shown} for a model: it is an option of the daemon")
    if elsewhere is not None:
        raise ValueError(f"cannot set {shown} for all models: it belongs into models.ini")
    raise ValueError(f"cannot know option {shown}{_suggestion(spelling, known, dashes)}")


def _environment_option(spelling: str) -> Option:
    """`env.NAME = value`: one variable of an instance's environment. These are the only rows without end."""
    if not _ENV_KEY.fullmatch(spelling):
        raise ValueError(f"cannot use '{spelling}': write env.NAME with letters, digits and _")
    return Option(spelling, Text(), "a variable of the instance's environment", Scope.MODEL)


def _suggestion(spelling: str, known: Mapping[str, Option], dashes: str) -> str:
    # Short spellings are near to everything, so they only suggest themselves for a difference in case.
    near = [word for word in known if word.lower() == spelling.lower()]
    near += difflib.get_close_matches(spelling, [word for word in known if len(word) > 3], n=1, cutoff=0.7)
    if not near:
        return ""
    return f": did you mean '{dashes and ('--' if len(near[0]) > 3 else '-')}{near[0]}'?"
