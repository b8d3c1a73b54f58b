"""llamactl check: is this configuration fit to start with? No daemon is asked."""

from __future__ import annotations

from pathlib import Path

import click

from llamad.cli.exits import ExitCode
from llamad.cli.invocation import Invocation, json_option
from llamad.cli.output import print_document


@click.command("check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--preset", "kind", flag_value="--models-preset", help="FILE is a models.ini, however it looks."
)
@click.option("--config", "kind", flag_value="--config", help="FILE is a llamad.ini, however it looks.")
@json_option
@click.pass_obj
def check(invocation: Invocation, file: Path | None, kind: str | None) -> None:
    """Check a configuration file without a daemon.

    FILE is a llamad.ini or a models.ini, which its sections tell; without one, what llamad would read by itself. Presets and model directories
    that it names are checked, too. Every problem is printed as file:line; the exit code is 1 if there is any. With
    --json: {"models": [names], "problems": [{"file", "line", "message", "model", "fatal"}]}.
    """
    from llamad.config import check as config_check
    from llamad.config.load import load

    if kind and not file:
        raise click.UsageError(f"cannot use {kind.replace('models-', '')} without a FILE")
    arguments = [kind, str(file)] if kind else config_check.arguments(str(file)) if file else []
    loaded = load(arguments)
    problems = loaded.registry.problems
    if invocation.json:
        documents = [problem.to_document() for problem in problems]
        print_document({"models": sorted(loaded.registry.models), "problems": documents})
    else:
        click.echo(config_check.render(problems), nl=False, err=True)
        click.echo(config_check.summary(loaded), nl=False)
        if not file:
            click.echo(config_check.read_files(loaded), nl=False)
    if problems:
        raise click.exceptions.Exit(ExitCode.FAILED)
