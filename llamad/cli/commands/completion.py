"""llamactl completion: the script that a shell needs to complete llamactl's words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
COMPLETE_ENV = "_LLAMACTL_COMPLETE"


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for bash, zsh or fish.

    \b
    bash:  llamactl completion bash > ~/.local/share/bash-completion/completions/llamactl
    zsh:   llamactl completion zsh > "${fpath[1]}/_llamactl"
    fish:  llamactl completion fish > ~/.config/fish/completions/llamactl.fish

    Model names are completed, too, by asking the daemon.
    """
    root = ctx.find_root()
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    click.echo(kind(root.command, {}, "llamactl", COMPLETE_ENV).source())
