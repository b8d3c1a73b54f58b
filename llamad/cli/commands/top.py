"""llamactl top: who is busy now, again and again."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterable

import click

from llamad.cli.client import Document
from llamad.cli.commands.ps import identity
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.output import print_line_document, print_table
from llamad.cli.text import NOTHING
from llamad.cli.times import Duration

EVERY_S_MIN = 0.1
COUNTERS = ("prompt_tokens", "predicted_tokens")
HEADINGS = ("PID", "ROLE", "MODEL", "STATE", "RSS", "CPU", "BUSY", "QUEUED", "PROMPT/S", "TOKENS/S")


@click.command()
@click.option(
    "--every",
    "every_s",
    metavar="TIME",
    type=Duration(),
    default="2",
    show_default=True,
    help="From one look to the next: 2, 500ms, 1m.",
)
@click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="End after so many tables.")
@admin_options
@click.pass_obj
def top(invocation: Invocation, every_s: float, count: int | None) -> None:
    """Watch memory, CPU, slots and tokens a second.

    PROMPT/S are prompt tokens that were evaluated, TOKENS/S generated ones, CPU is 100% for each core that is busy, all since
    the look before. Ends with Ctrl-C. With --json each look is one line.
    """
    every_s = max(EVERY_S_MIN, every_s)
    client = invocation.client()
    before, then = _processes(client.get("/ps")), time.monotonic()
    for _ in itertools.count() if count is None else range(count):
        time.sleep(every_s)
        after, now = _processes(client.get("/ps")), time.monotonic()
        rows = with_rates(before, after, now - then)
        before, then = after, now
        if invocation.json:
            print_line_document({"processes": rows})
            continue
        if sys.stdout.isatty():
            click.clear()
        print_table(HEADINGS, [_row(process) for process in rows], wide=("MODEL",))


def with_rates(before: Iterable[Document], after: Iterable[Document], seconds: float) -> list[Document]:
    """The processes of `after`, the busiest first, each with `rates`: `cpu` (cores) and COUNTERS, each a second.

    None where there is nothing to compare with: the process is new, or counts no such thing.
    """
    known = {process.get("pid"): process for process in before}
    rows = []
    for process in after:
        old = known.get(process.get("pid"), {})
        now_counted, then_counted = process.get("stats") or {}, old.get("stats") or {}
        rates = {name: _rate(then_counted.get(name), now_counted.get(name), seconds) for name in COUNTERS}
        rows.append(
            {**process, "rates": {"cpu": _rate(old.get("cpu_s"), process.get("cpu_s"), seconds), **rates}}
        )
    return sorted(rows, key=lambda row: -(row["rates"]["cpu"] or 0.0))


def _rate(then: float | None, now: float | None, seconds: float) -> float | None:
    if then is None or now is None or now < then or seconds <= 0:
        return None
    return round((now - then) / seconds, 3)


def _processes(document: Document) -> list[Document]:
    return list(document.get("processes") or [])


def _row(process: Document) -> list[str]:
    stats, rates = process.get("stats") or {}, process["rates"]
    cpu = rates["cpu"]
    return [
        *identity(process),
        NOTHING if cpu is None else f"{cpu:.0%}",
        *(str(stats.get(name, NOTHING)) for name in ("slots_busy", "queued")),
        *(NOTHING if rates[name] is None else f"{rates[name]:.1f}" for name in COUNTERS),
    ]
