"""llamactl plan: what loading a model now would do."""

from __future__ import annotations

import click

from llamad.cli.client import Document, model_path
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.names import ModelName, asking_about
from llamad.cli.output import print_document, print_fields
from llamad.cli.text import NOTHING, duration, scalar


@click.command()
@click.argument("model", type=ModelName())
@admin_options
@click.pass_obj
def plan(invocation: Invocation, model: str) -> None:
    """Say what loading MODEL now would do.

    Whether it fits, who would be unloaded for it and in which order, what it would wait for, or why it would be
    refused. Nothing is changed.
    """
    client = invocation.client()
    with asking_about(client, model):
        document = client.get(model_path(model, "plan"))
    if invocation.json:
        print_document(document)
    else:
        print_fields({"model": scalar("id", document.get("model"))} | plan_fields(document))


def plan_fields(document: Document) -> dict[str, str]:
    """A plan as lines; what it does not say is left out."""
    fields = {
        "outcome": scalar("outcome", document.get("outcome")),
        "because": scalar("message", document.get("message")),
        "needs": scalar("need", document.get("need") or {}),
        "available": scalar("available", document.get("available") or {}),
        "short of": scalar("short", document.get("short") or {}),
        "unloads": scalar("evictions", document.get("evictions") or []),
        "closes": scalar("drains", document.get("drains") or []),
        "closes in": duration(document.get("drain_after_s")) if document.get("drains") else NOTHING,
        "leaving": scalar("leaving", document.get("leaving") or []),
    }
    return {name: value for name, value in fields.items() if value not in ("", NOTHING)}
