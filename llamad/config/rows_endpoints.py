"""Rows of the option table: which of its own pages an instance shows. llama-server's names and defaults."""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.values import Flag

_GROUP = "Instances: pages about themselves"
_ALL = Scope.INSTANCE

ROWS: tuple[Option, ...] = (
    Option(
        "slots",
        Flag(),
        "GET /slots: what each slot is doing",
        _ALL,
        _GROUP,
        default=True,
        negatives=("no-slots",),
        env=("LLAMA_ARG_ENDPOINT_SLOTS",),
    ),
    Option(
        "props",
        Flag(),
        "POST /props, which llama-server's tools send; it changes nothing",
        _ALL,
        _GROUP,
        default=False,
        env=("LLAMA_ARG_ENDPOINT_PROPS",),
    ),
    Option(
        "metrics",
        Flag(),
        "GET /metrics of an instance by itself; the daemon's own page is always there",
        _ALL,
        _GROUP,
        default=False,
        env=("LLAMA_ARG_ENDPOINT_METRICS",),
    ),
)
