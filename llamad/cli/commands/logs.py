"""llamactl logs: what a model's process, or the daemon, has written."""

from __future__ import annotations

import click

from llamad.cli.client import model_path
from llamad.cli.following import follow_options
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.names import ModelName, asking_about
from llamad.cli.output import print_line_document, print_text


@click.command()
@click.argument("model", required=False, type=ModelName())
@follow_options("lines")
@admin_options
@click.pass_obj
def logs(invocation: Invocation, model: str | None, follow: bool, lines: int) -> None:
    """Print the log of a model, or the daemon's own.

    A model's log outlives its processes: it still tells why the last one ended. With --json each line is an object
    {"model", "line"}.
    """
    client = invocation.client()
    path = "/logs" + (model_path(model).removeprefix("/models") if model else "")
    with asking_about(client, model or ""):
        for line in client.lines(path, {"n": lines}, follow=follow):
            if invocation.json:
                print_line_document({"model": model, "line": line})
            else:
                print_text(line)
