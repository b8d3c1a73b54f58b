"""What one call of llamactl was told before its command: which socket, and whether to print JSON."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from llamad.cli.client import ANSWER_WITHIN_S, AdminClient
from llamad.cli.socket_path import admin_socket_path

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Invocation:
    """Filled by the options below, read by commands (`@click.pass_obj`)."""

    socket_path: Path | None = None
    json: bool = False

    def client(self, timeout_s: float = ANSWER_WITHIN_S) -> AdminClient:
        """A client of the socket that was named, or of the default one."""
        return AdminClient(self.socket_path or admin_socket_path(os.environ), timeout_s)


def _take_socket(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    invocation = ctx.ensure_object(Invocation)
    if value is not None:
        invocation.socket_path = value


def _take_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Invocation).json |= bool(value)


socket_option = click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    expose_value=False,
    callback=_take_socket,
    help="Admin socket of the daemon  [default: $LLAMAD_SOCKET, /run/llamad/admin.sock, or your own daemon's]",
)

json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_take_json,
    help="Print the API's JSON instead of text.",
)


def admin_options(command: Command) -> Command:
    """The options of every command that asks the daemon. Accepted after the command, too, where people type them."""
    return socket_option(json_option(command))
