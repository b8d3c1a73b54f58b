"""llamactl load: have models in memory before anybody asks for them."""

from __future__ import annotations

import click

from llamad.cli.changes import ModelChange, change_models
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.names import ModelName


@click.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=ModelName())
@click.option("--no-wait", is_flag=True, help="Only ask; do not wait until it is loaded.")
@admin_options
@click.pass_obj
def load(invocation: Invocation, models: tuple[str, ...], no_wait: bool) -> None:
    """Load models and wait until they can answer.

    One after another, in the order of the arguments. Loading a model that is loaded is harmless. A model that failed is tried again at once. With --json
    each answer is one line.
    """
    change_models(
        invocation,
        ModelChange("/models/load", "loading", "loaded", wait=not no_wait, already="was loaded already"),
        models,
    )
