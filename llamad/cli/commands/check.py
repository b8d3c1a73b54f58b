"""llamactl check: is this configuration fit to start with? No daemon is asked."""

from __future__ import annotations

from pathlib import Path

import click

from llamad.cli.exits import ExitCode
from llamad.cli.invocation import Invocation, json_option
from llamad.cli.output import print_document


@click.command("check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def check(invocation: Invocation, file: Path | None) -> None:
    """Check a configuration file without a daemon.

    FILE is a llamad.ini or a models.ini; without one, what llamad would read by itself. Presets and model directories
    that it names are checked, too. Every problem is printed as file:line; the exit code is 1 if there is any. With
    --json: {"models": [names], "problems": [{"file", "line", "message", "model", "fatal"}]}.
    """
    from llamad.config import check as config_check
    from llamad.config.load import load

    loaded = load(config_check.arguments(str(file)) if file else [])
    problems = loaded.registry.problems
    if invocation.json:
        documents = [problem.to_document() for problem in problems]
        print_document({"models": sorted(loaded.registry.models), "problems": documents})
    else:
        click.echo(config_check.render(problems), nl=False, err=True)
        click.echo(config_check.summary(loaded), nl=False)
    if problems:
        raise click.exceptions.Exit(ExitCode.FAILED)
