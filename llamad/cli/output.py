"""Where llamactl's words go: documents and tables to stdout, complaints to stderr.

On a terminal tables are coloured and wrapped to its width; elsewhere they are plain text of any width, without
trailing blanks, so that other programs and golden files can take them. NO_COLOR is rich's to obey.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from llamad.cli.text import one_line, printable
from llamad.errors import LlamadError

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 1 << 16
"""Columns of something that is no terminal: more than any row has."""

STATE_STYLES = {
    "loaded": "green",
    "loading": "yellow",
    "sleeping": "cyan",
    "downloading": "yellow",
    "failed": "red",
}

Rows = Sequence[Sequence[str]]


def print_document(document: Any) -> None:
    """One whole JSON document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_line_document(document: Any) -> None:
    """One JSON document as one line of a stream."""
    click.echo(json.dumps(document, ensure_ascii=False))


def print_text(text: str) -> None:
    """One line of somebody else's text. Control characters are spelled out where they could reach a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text)


def print_table(headings: Sequence[str], rows: Rows, *, wide: Sequence[str] = ()) -> None:
    """Aligned columns. Those named in `wide` give way, by wrapping, when the terminal is too narrow."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=heading not in wide, overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    _print(table)


def print_fields(fields: Mapping[str, str]) -> None:
    """`name  value` lines, values aligned."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name, _cell(value))
    _print(table)


def print_heading(text: str) -> None:
    """A heading with a blank line above it."""
    from rich.text import Text

    click.echo()
    _print(Text(text, style="bold"))


def complain(text: str) -> None:
    """One line to the person at the terminal, even when stdout goes to a program."""
    click.echo(f"llamactl: {printable(text)}", err=True)


def report_error(error: LlamadError, *, as_json: bool = False) -> None:
    """What went wrong, with the problems that it carries, if any; as JSON on stdout, too, when JSON was asked for.

    Notes on the exception are llamactl's own hints: people get them, programs the daemon's own words.
    """
    if as_json:
        print_line_document(error.body())
    complain("; ".join([error.message, *getattr(error, "__notes__", [])]))
    for problem in problems_of(error):
        click.echo("  " + problem_text(problem), err=True)


def problems_of(error: LlamadError) -> list[Mapping[str, Any]]:
    """Configuration problems in the details of an error."""
    found = error.details.get("problems")
    return [problem for problem in found if isinstance(problem, Mapping)] if isinstance(found, list) else []


def problem_text(problem: Mapping[str, Any]) -> str:
    """`file:line: cannot ...` of one problem document."""
    where = ":".join(str(part) for part in (problem.get("file"), problem.get("line")) if part)
    return one_line(f"{where}: {problem.get('message', '')}" if where else str(problem.get("message", "")))


def stderr_console() -> Console:
    """A rich console on stderr, for what moves (progress)."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _cell(text: str) -> Any:
    from rich.text import Text

    clean = one_line(text)
    return Text(clean, style=STATE_STYLES.get(clean, ""))


def _print(renderable: Any) -> None:
    console = _stdout_console(sys.stdout)
    with console.capture() as captured:
        console.print(renderable)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=console.is_terminal)


def _stdout_console(stream: IO[str]) -> Console:
    from rich.console import Console

    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=PLAIN_WIDTH)
