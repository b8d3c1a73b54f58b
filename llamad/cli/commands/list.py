"""llamactl list: every model that can be served."""

from __future__ import annotations

import click

from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.models import print_models
from llamad.cli.output import print_document


@click.command("list")
@admin_options
@click.pass_obj
def list_models(invocation: Invocation) -> None:
    """List every model with its state (also: ls)."""
    document = invocation.client().get("/models")
    if invocation.json:
        print_document(document)
    else:
        print_models(document.get("data") or [])
