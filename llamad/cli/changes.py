"""One kind of change, asked of several models one after another, each reported as it ends.

One after another, and not at once: where only some fit, the order on the command line decides who stays.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from llamad.cli.client import Document
from llamad.cli.exits import ExitCode, NotAllowedError, UnreachableError, exit_code_of_several
from llamad.cli.invocation import Invocation
from llamad.cli.models import state_word
from llamad.cli.names import asking_about
from llamad.cli.output import complain, print_line_document, report_error
from llamad.cli.text import one_line
from llamad.cli.waiting import ask_change
from llamad.errors import LlamadError
from llamad.units import format_duration


@dataclass(frozen=True)
class ModelChange:
    """POST `path`; `verb` is how it is spoken of while it runs (`loading`), `done` what it ends in.

    `already`: what is said when there was nothing to do.
    `wait`: until that is reached, or not; None: it is done as soon as it is asked.
    """

    path: str
    verb: str
    done: str
    wait: bool | None
    already: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def change_models(invocation: Invocation, change: ModelChange, models: Sequence[str]) -> None:
    """Ask `change` of each model in turn; leave with the code of the failures, if any."""
    errors: list[LlamadError] = []
    for model in models:
        try:
            _change_one(invocation, change, model)
        except (UnreachableError, NotAllowedError):
            raise
        except LlamadError as error:
            report_error(error, as_json=invocation.json)
            errors.append(error)
        except KeyboardInterrupt:
            complain(f"stopped waiting: llamad goes on {change.verb} {model!r}")
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
    if errors:
        raise click.exceptions.Exit(exit_code_of_several(errors, asked=len(models)))


def _change_one(invocation: Invocation, change: ModelChange, model: str) -> None:
    client = invocation.client()
    started = time.monotonic()
    with asking_about(client, model):
        answer = ask_change(
            client,
            change.path,
            {"model": model, **change.extra},
            wait=bool(change.wait),
            watcher=invocation.client,
            verb=change.verb,
        )
    if invocation.json:
        print_line_document(answer)
    else:
        click.echo(_outcome(change, model, answer, time.monotonic() - started))


def _outcome(change: ModelChange, model: str, answer: Document, took_s: float) -> str:
    """What has become of `model`. It may be elsewhere by the time of the answer: somebody else wants it, too."""
    if change.wait is None:
        return f"{one_line(model)}: {change.done}"
    if change.already and answer.get("already"):
        return f"{one_line(model)}: {change.already}"
    state = state_word(answer)
    if not change.wait:
        return f"{one_line(model)}: {state}"
    since = "" if state == change.done else f", now {state}"
    return f"{one_line(model)}: {change.done} ({format_duration(took_s)}){since}"
