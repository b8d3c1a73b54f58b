"""llamactl events: what the daemon decided, and why."""

from __future__ import annotations

import json
from datetime import datetime

import click

from llamad.cli.client import Document
from llamad.cli.following import follow_options
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.output import print_line_document, print_text
from llamad.cli.text import NOTHING, labelled, one_line
from llamad.errors import LlamadError

COMMON = ("seq", "time", "kind", "model", "text")
KIND_WIDTH = 10
MODEL_WIDTH = 20
"""Columns at least this wide: a stream cannot know what is still to come."""


@click.command()
@follow_options("events")
@admin_options
@click.pass_obj
def events(invocation: Invocation, follow: bool, lines: int) -> None:
    """Print the daemon's decisions with their reasons.

    Oldest first, each with the numbers that it was made on. With --json each event is one line.
    """
    for line in invocation.client().lines("/events", {"n": lines}, follow=follow):
        event = _parsed(line)
        if invocation.json:
            print_line_document(event)
        else:
            print_text(event_text(event))


def event_text(event: Document) -> str:
    """`Dec 01 12:00:03  loaded  smollm2  text (numbers)` with the local time."""
    numbers = [
        labelled(name, value)
        for name, value in event.items()
        if name not in COMMON and value is not None and value != {}
    ]
    text = one_line(str(event.get("text") or ""))
    if numbers:
        text = f"{text} ({', '.join(numbers)})".lstrip()
    model = one_line(str(event.get("model") or NOTHING))
    return f"{_time_text(event.get('time'))}  {event.get('kind', ''):<{KIND_WIDTH}}  {model:<{MODEL_WIDTH}}  {text}".rstrip()


def _time_text(value: object) -> str:
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value).strftime("%b %d %H:%M:%S")
    return str(value or NOTHING)


def _parsed(line: str) -> Document:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise LlamadError(f"cannot read an event: {error}") from error
    if not isinstance(event, dict):
        raise LlamadError("cannot read an event: it is no JSON object")
    return event
