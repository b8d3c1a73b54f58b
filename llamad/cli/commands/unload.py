"""llamactl unload: give memory back."""

from __future__ import annotations

import click

from llamad.cli.changes import ModelChange, change_models
from llamad.cli.client import AdminClient
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.names import ModelName
from llamad.cli.output import complain

RESIDENT = ("loading", "loaded", "sleeping")


@click.command()
@click.argument("models", metavar="[MODEL...]", nargs=-1, type=ModelName())
@click.option("--all", "everything", is_flag=True, help="Unload every model that is in memory.")
@click.option("--force", is_flag=True, help="Cut running requests instead of waiting for them.")
@click.option("--no-wait", is_flag=True, help="Only ask; do not wait until its process is gone.")
@admin_options
@click.pass_obj
def unload(
    invocation: Invocation, models: tuple[str, ...], everything: bool, force: bool, no_wait: bool
) -> None:
    """Unload models and wait until their processes are gone.

    One after another, in the order of the arguments. Running requests are answered first; new ones wait, and load the
    model again. Unloading a model that is not loaded is harmless. With --json each answer is
    one line.
    """
    if everything == bool(models):
        raise click.UsageError("name the models to unload, or say --all")
    chosen = _resident(invocation.client()) if everything else list(models)
    if not chosen:
        complain("no model is loaded")
    extra = {"force": True} if force else {}
    change_models(
        invocation,
        ModelChange(
            "/models/unload",
            "unloading",
            "unloaded",
            wait=not no_wait,
            already="was not loaded",
            extra=extra,
        ),
        chosen,
    )


def _resident(client: AdminClient) -> list[str]:
    models = client.get("/models").get("data") or []
    return [str(model["id"]) for model in models if (model.get("status") or {}).get("value") in RESIDENT]
