"""llamactl reload: read the configuration again."""

from __future__ import annotations

import click

from llamad.cli.client import Document
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.output import print_document, print_fields
from llamad.cli.text import scalar


@click.command()
@admin_options
@click.pass_obj
def reload(invocation: Invocation) -> None:
    """Read configuration and model directories again.

    The same as 'systemctl reload llamad'. Prints what has changed. When anything is wrong every problem is printed, and nothing changes. Models whose
    settings are the same keep their process and their streams.
    """
    document = invocation.client().post("/reload", {}, patient=True)
    if invocation.json:
        print_document(document)
    else:
        print_fields(_changes(document))


def _changes(document: Document) -> dict[str, str]:
    fields = {
        name: scalar(name, document.get(name))
        for name in ("added", "changed", "removed")
        if document.get(name)
    }
    fields["unchanged"] = str(document.get("unchanged", 0))
    if document.get("restart_needed"):
        fields["restart needed for"] = scalar("restart_needed", document["restart_needed"])
    return fields
