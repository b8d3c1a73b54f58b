"""Times as people type them."""

from __future__ import annotations

from typing import Any

import click

from llamad.units import parse_duration


class Duration(click.ParamType):
    """Seconds, written `90`, `10m` or `2h`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
