"""llamactl ps: the daemon's processes."""

from __future__ import annotations

import click

from llamad.cli.client import Document
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.output import print_document, print_table
from llamad.cli.text import NOTHING, duration, size

HEADINGS = ("PID", "ROLE", "MODEL", "STATE", "RSS", "CPU", "UPTIME", "BUSY", "QUEUED", "TOKENS", "ADDRESS")


@click.command()
@admin_options
@click.pass_obj
def ps(invocation: Invocation) -> None:
    """List the daemon's processes, their memory and work.

    BUSY is slots in use, QUEUED requests that wait for a slot, TOKENS tokens generated so far.
    """
    document = invocation.client().get("/ps")
    if invocation.json:
        print_document(document)
    else:
        print_table(HEADINGS, [_row(process) for process in document.get("processes") or []], wide=("MODEL",))


def identity(process: Document) -> list[str]:
    """Who a process is, and its resident memory: the cells of its first five columns."""
    return [
        str(process.get("pid", NOTHING)),
        str(process.get("role") or NOTHING),
        str(process.get("model") or NOTHING),
        str(process.get("state") or NOTHING),
        size(process.get("rss_bytes")),
    ]


def _row(process: Document) -> list[str]:
    stats = process.get("stats") or {}
    counters = [str(stats.get(name, NOTHING)) for name in ("slots_busy", "queued", "predicted_tokens")]
    return [
        *identity(process),
        duration(process.get("cpu_s")),
        duration(process.get("uptime_s")),
        *counters,
        str(process.get("address") or NOTHING),
    ]
