"""llamactl status: the whole daemon on one screen."""

from __future__ import annotations

from typing import Any

import click

from llamad.cli.client import Document
from llamad.cli.invocation import Invocation, admin_options
from llamad.cli.models import print_models
from llamad.cli.output import print_document, print_fields, print_heading, print_table, problem_text
from llamad.cli.text import duration, label, labelled, scalar

LIMITS_A_LINE = 5


@click.command()
@admin_options
@click.pass_obj
def status(invocation: Invocation) -> None:
    """Show daemon, limits, queue and models on one screen."""
    document = invocation.client().get("/status")
    if invocation.json:
        print_document(document)
    else:
        _print_status(document)


def _print_status(document: Document) -> None:
    print_fields(_head(document))
    _print_devices(document.get("devices") or [])
    _print_queue(document.get("queue") or [])
    models = document.get("models") or []
    print_heading("Models" if models else "No models: set models-dir or models-preset")
    if models:
        print_models(models)
    _print_problems(document.get("problems") or [])


def _head(document: Document) -> dict[str, str]:
    daemon = document.get("daemon") or {}
    limits = document.get("limits") or {}
    fields = {
        "llamad": _daemon_line(daemon),
        "listens on": scalar("listeners", daemon.get("listeners")),
        "workers": f"{daemon.get('workers_ready', 0)} of {daemon.get('workers', 0)} ready",
        "config": daemon.get("config_file") or "none, defaults are used",
        "runtime": scalar("runtime_dir", daemon.get("runtime_dir")),
    }
    words = [
        f"{label(name)} off" if value is None else labelled(name, value) for name, value in limits.items()
    ]
    for at in range(0, len(words), LIMITS_A_LINE):
        fields["" if at else "limits"] = ", ".join(words[at : at + LIMITS_A_LINE])
    return fields


def _daemon_line(daemon: Document) -> str:
    return (
        f"{daemon.get('state', 'unknown')}, version {daemon.get('version', 'unknown')}, "
        f"pid {daemon.get('pid', 'unknown')}, up {duration(daemon.get('uptime_s'))}"
    )


def _print_devices(devices: list[Document]) -> None:
    if not devices:
        return
    names: list[str] = list(dict.fromkeys(name for device in devices for name in device))
    print_heading("Devices")
    print_table(
        [label(name).upper() for name in names],
        [[scalar(name, device.get(name)) for name in names] for device in devices],
    )


def _print_queue(queue: list[Document]) -> None:
    if not queue:
        return
    print_heading("Queue")
    print_table(
        ("MODEL", "WAITERS", "WAITED", "DRAINING"), [_queue_row(entry) for entry in queue], wide=("MODEL",)
    )


def _queue_row(entry: Document) -> list[str]:
    draining: Any = entry.get("draining")
    return [
        str(entry.get("model", "")),
        str(entry.get("waiters", 0)),
        duration(entry.get("waited_s")),
        scalar("draining", draining),
    ]


def _print_problems(problems: list[Document]) -> None:
    if not problems:
        return
    print_heading("Problems")
    for problem in problems:
        click.echo(problem_text(problem))
