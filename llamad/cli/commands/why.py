"""llamactl why: which decisions brought a model to where it is."""

from __future__ import annotations

from typing import Any

import click

from llamad.cli.client import Document, model_path
from llamad.cli.commands.events import event_text
from llamad.cli.commands.plan import plan_fields
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.names import ModelName, asking_about
from llamad.cli.output import print_document, print_fields, print_heading, print_text
from llamad.cli.text import NOTHING, duration, memory, scalar

DECISION_TIMES = ("ago_s",)


@click.command()
@click.argument("model", type=ModelName())
@admin_options
@click.pass_obj
def why(invocation: Invocation, model: str) -> None:
    """Say why MODEL is in its state.

    The last decisions about it, newest first, each with the numbers that it was made on; and what it waits for.
    """
    client = invocation.client()
    with asking_about(client, model):
        document = client.get(model_path(model, "why"))
    if invocation.json:
        print_document(document)
        return
    print_fields(_fields(document))
    _print_queue(document.get("queue"))
    decisions = document.get("decisions") or []
    print_heading("Decisions, newest first" if decisions else "No decision about it yet")
    for decision in decisions:
        print_text(event_text(_event(decision, document)))


def _fields(document: Document) -> dict[str, str]:
    failure: Any = document.get("failure") or {}
    fields = {
        "model": scalar("id", document.get("model")),
        "state": "failed" if document.get("failed") else scalar("state", document.get("state")),
        "for": duration(document.get("since_s")),
        "reason": scalar("reason", document.get("reason")),
        "memory": memory(document.get("memory")),
        "failed": scalar("message", failure.get("message")),
        "in a row": scalar("count", failure.get("count")),
        "next try in": duration(failure.get("retry_in_s") or None),
    }
    if fields["reason"] == fields["failed"]:
        del fields["reason"]
    return {name: value for name, value in fields.items() if value not in ("", NOTHING)}


def _print_queue(queue: Document | None) -> None:
    if not queue:
        return
    print_heading("It waits")
    place = {
        "position": scalar("position", queue.get("position")),
        "waiters": scalar("waiters", queue.get("waiters")),
        "waited": duration(queue.get("waited_s")),
    }
    print_fields(place | plan_fields(queue.get("plan") or {}))


def _event(decision: Document, document: Document) -> Document:
    shown = {name: value for name, value in decision.items() if name not in DECISION_TIMES}
    return {**shown, "model": document.get("model")}
