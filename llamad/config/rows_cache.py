"""Rows of the option table: what an instance keeps of prompts, and for how long. llama-server's names and meanings."""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.values import Flag, Whole

_KEEPING = "Instances: what is kept of prompts"
_ALL = Scope.INSTANCE

ROWS: tuple[Option, ...] = (
    Option(
        "context-shift",
        Flag(),
        "answers and prompts may be longer than the context: the oldest part is dropped, for models that can do that",
        _ALL,
        _KEEPING,
        default=False,
        negatives=("no-context-shift",),
    ),
    Option(
        "keep",
        Whole(-1, 2**31 - 1),
        "tokens of the prompt that context-shift never drops, -1 for all of it",
        _ALL,
        _KEEPING,
        default=0,
    ),
)
