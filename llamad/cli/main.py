"""The `llamactl` command: its commands in the order of the help, and the one place where errors become exit codes."""

from __future__ import annotations

from typing import Any

import click

from llamad import __version__
from llamad.cli.commands.chat import chat
from llamad.cli.commands.check import check
from llamad.cli.commands.completion import completion
from llamad.cli.commands.events import events
from llamad.cli.commands.list import list_models
from llamad.cli.commands.load import load
from llamad.cli.commands.logs import logs
from llamad.cli.commands.pin import hold, pin, unpin
from llamad.cli.commands.plan import plan
from llamad.cli.commands.ps import ps
from llamad.cli.commands.reload import reload
from llamad.cli.commands.show import show
from llamad.cli.commands.status import status
from llamad.cli.commands.top import top
from llamad.cli.commands.unload import unload
from llamad.cli.commands.version import version
from llamad.cli.commands.why import why
from llamad.cli.exits import ExitCode, exit_code
from llamad.cli.invocation import Invocation, socket_option
from llamad.cli.output import report_error
from llamad.errors import LlamadError

SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "See what runs": (status, list_models, show, ps, top),
    "Change what runs": (load, unload, pin, unpin, hold, reload),
    "Find out why": (why, plan, logs, events),
    "Use a model": (chat,),
    "This installation": (check, version, completion),
}
ALIASES = {"ls": "list"}


class Llamactl(click.Group):
    """A group with sections and aliases, whose commands may raise LlamadError."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.commands)
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (f"{command.name:<{width}}", command.get_short_help_str(limit=90))
                        for command in commands
                    ]
                )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LlamadError as error:
            report_error(error, as_json=ctx.ensure_object(Invocation).json)
            raise click.exceptions.Exit(exit_code(error)) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


@click.group(
    cls=Llamactl,
    commands=[command for commands in SECTIONS.values() for command in commands],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@socket_option
@click.version_option(__version__, prog_name="llamactl")
def main() -> None:
    """Operate llamad: many local models behind one OpenAI-compatible port.

    Commands talk to the daemon's admin socket. Those that report something take --json.

    \b
    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 daemon not reachable, 4 no such model,
    5 not allowed, 130 cut by Ctrl-C.
    """
