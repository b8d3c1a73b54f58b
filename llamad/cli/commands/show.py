"""llamactl show: one model in full."""

from __future__ import annotations

import click

from llamad.cli.client import model_path
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.models import model_fields
from llamad.cli.names import ModelName, asking_about
from llamad.cli.output import print_document, print_fields, print_heading, print_text


@click.command()
@click.argument("model", type=ModelName())
@admin_options
@click.pass_obj
def show(invocation: Invocation, model: str) -> None:
    """Show one MODEL in full.

    Its state and why, its process, its settings, and what its file says.
    """
    client = invocation.client()
    with asking_about(client, model):
        document = client.get(model_path(model))
    if invocation.json:
        print_document(document)
        return
    print_fields(model_fields(document))
    preset = str((document.get("status") or {}).get("preset") or "").strip()
    if preset:
        print_heading("Preset")
        for line in preset.splitlines():
            print_text(line)
