"""llamactl pin, unpin, hold: keep models in memory, whatever else is asked for."""

from __future__ import annotations

import click

from llamad.cli.changes import ModelChange, change_models
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.names import ModelName
from llamad.cli.times import Duration
from llamad.units import format_duration

models_argument = click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=ModelName())


@click.command()
@models_argument
@admin_options
@click.pass_obj
def pin(invocation: Invocation, models: tuple[str, ...]) -> None:
    """Never unload models to make room for others.

    A pin does not load a model. It outlives crashes, reloads and restarts, and wins over the configuration until
    'llamactl unpin'. Requests that find nothing but pinned models in their way are refused at once.
    """
    change_models(invocation, ModelChange("/models/pin", "pinning", "pinned", wait=None), models)


@click.command()
@models_argument
@admin_options
@click.pass_obj
def unpin(invocation: Invocation, models: tuple[str, ...]) -> None:
    """End pins and holds of models.

    They may be unloaded again to make room for others.
    """
    change_models(
        invocation, ModelChange("/models/unpin", "unpinning", "no longer pinned", wait=None), models
    )


@click.command()
@models_argument
@click.option("--for", "for_s", metavar="TIME", type=Duration(), required=True, help="How long: 90, 10m, 2h.")
@admin_options
@click.pass_obj
def hold(invocation: Invocation, models: tuple[str, ...], for_s: float) -> None:
    """Pin models for a while.

    As 'llamactl pin', but it ends by itself. A new hold takes the place of an earlier one.
    """
    done = f"held for {format_duration(for_s)}"
    change_models(
        invocation, ModelChange("/models/hold", "holding", done, wait=None, extra={"for_s": for_s}), models
    )
