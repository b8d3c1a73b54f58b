"""The options of commands that print lines of a stream: how many old ones, and whether to stay for new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

LINES_DEFAULT = 100


def follow_options(kind: str) -> Callable[[Any], Any]:
    """`-f` and `-n`, as `follow` and `lines`. `kind`: what there is one of on a line, in the plural."""
    follow = click.option("-f", "--follow", is_flag=True, help=f"Go on with new {kind} until Ctrl-C.")
    lines = click.option(
        "-n",
        "--lines",
        metavar="N",
        type=click.IntRange(min=0),
        default=LINES_DEFAULT,
        show_default=True,
        help=f"Old {kind} to begin with.",
    )
    return lambda command: follow(lines(command))
