"""Model names on the command line: tab completion, and what to say about one that does not exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches

import click
from click.shell_completion import CompletionItem

from llamad.cli.client import AdminClient, Document
from llamad.cli.exits import MODEL_NOT_FOUND
from llamad.cli.invocation import Invocation
from llamad.errors import LlamadError, NotFoundError

COMPLETE_WITHIN_S = 1.0
SUGGESTIONS_MAX = 3


class ModelName(click.ParamType):
    """A model's id or alias. Any text is taken: which names exist is the daemon's business."""

    name = "model"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that begin with what is typed; nothing, silently, when the daemon does not answer."""
        invocation = ctx.ensure_object(Invocation)
        try:
            names = known_names(invocation.client(timeout_s=COMPLETE_WITHIN_S))
        except LlamadError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def known_names(client: AdminClient) -> list[str]:
    """Ids and aliases of all models."""
    models = client.get("/models").get("data") or []
    return [name for model in models for name in _names(model)]


@contextmanager
def asking_about(client: AdminClient, name: str) -> Iterator[None]:
    """Adds close matches, as a note, to a model-not-found error that is raised inside."""
    try:
        yield
    except NotFoundError as error:
        if error.kind == MODEL_NOT_FOUND and (hint := _suggestion(client, name)):
            error.add_note(hint)
        raise


def _suggestion(client: AdminClient, name: str) -> str:
    try:
        close = close_names(name, known_names(client))
    except LlamadError:
        return ""
    return f"did you mean {' or '.join(map(repr, close))}?" if close else "'llamactl list' shows all"


def close_names(name: str, known: list[str]) -> list[str]:
    """Up to three of `known` that somebody who typed `name` may have meant, closest first. Case does not count."""
    by_folded = {candidate.casefold(): candidate for candidate in reversed(known)}
    matches = get_close_matches(name.casefold(), by_folded, n=SUGGESTIONS_MAX, cutoff=0.6)
    starts = [
        folded
        for folded in by_folded
        if name and folded.startswith(name.casefold()) and folded not in matches
    ]
    return [by_folded[folded] for folded in [*matches, *sorted(starts)][:SUGGESTIONS_MAX]]


def _names(model: Document) -> list[str]:
    return [str(model.get("id", "")), *map(str, model.get("aliases") or [])]
