"""Two servers measured in turn: rounds, medians of their ratios, and a table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Row = dict[str, Any]
"""Measured values by name."""


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    """What there is of llamad's, and the same of llama-server's."""

    ours: T
    theirs: T

    def __iter__(self) -> Iterator[T]:
        yield self.ours
        yield self.theirs


def rounds(
    servers: Pair[T], count: int, deadline_s: float, measure: Callable[[T], Row], first: int = 0
) -> list[Pair[Row]]:
    """At least one, and no further one after the deadline (of the monotonic clock). Who is first alternates."""
    found: list[Pair[Row]] = []
    for number in range(first, first + count):
        if found and time.monotonic() > deadline_s:
            break
        if number % 2:
            theirs = measure(servers.theirs)
            found.append(Pair(measure(servers.ours), theirs))
        else:
            ours = measure(servers.ours)
            found.append(Pair(ours, measure(servers.theirs)))
    return found


def summary(found: list[Pair[Row]]) -> dict[str, Row]:
    """By name: both medians, the median of the ratios, and the quartiles that its middle half lies between."""
    return {
        name: {
            "llamad": _short(statistics.median(pair.ours[name] for pair in found)),
            "llama-server": _short(statistics.median(pair.theirs[name] for pair in found)),
            **_ratios([pair.ours[name] / pair.theirs[name] for pair in found]),
            "rounds": len(found),
        }
        for name in found[0].ours
    }


def _ratios(ratios: list[float]) -> Row:
    low, middle, high = (
        statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    )
    return {"ratio": _short(middle), "spread": [_short(low), _short(high)]}


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def print_table(report: dict[str, Any]) -> None:
    """For people."""
    machine = report["machine"]
    load = " to ".join(f"{value:.1f}" for value in machine["load"])
    print(f"{report['what']}: {report['model']}, {machine['cores']} cores, load {load}")
    print(f"{'':26}{'llamad':>10}{'llama-server':>14}{'ratio':>9}{'middle half':>18}{'rounds':>8}")
    for title, rows in report["rows"].items():
        for name, row in rows.items():
            spread = "{} to {}".format(*row["spread"])
            print(
                f"{title:11}{name:15}{row['llamad']:>10}{row['llama-server']:>14}"
                f"{row['ratio']:>9}{spread:>18}{row['rounds']:>8}"
            )
            title = ""
