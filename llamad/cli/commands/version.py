"""llamactl version: this program's and the daemon's."""

from __future__ import annotations

import click

from llamad import __version__
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.output import print_document, print_fields
from llamad.cli.text import scalar
from llamad.errors import LlamadError


@click.command()
@admin_options
@click.pass_obj
def version(invocation: Invocation) -> None:
    """Show the versions of llamactl and the daemon.

    With --json the daemon's document alone. 'llamactl --version' asks no daemon.
    """
    own = {"llamactl": __version__}
    try:
        document = invocation.client().get("/version")
    except LlamadError:
        if not invocation.json:
            print_fields(own)
        raise
    if invocation.json:
        print_document(document)
    else:
        print_fields(own | {"llamad": scalar("version", document.pop("version", None))} | _rest(document))


def _rest(document: dict[str, object]) -> dict[str, str]:
    return {name: scalar(name, value) for name, value in document.items()}
