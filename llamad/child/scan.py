"""The scan role: read configuration and models once, report everything, exit.

A child does it, because disks may be slow and GGUF files may come from anywhere. Reports: the items `settings`, `model`
and `problem` in any number, then the state `scanned`; the supervisor applies them all or none.

A file that somebody is still writing must not be applied, so a scan waits until what it reads has come to rest
(`llamad.config.files`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from llamad.config.load import load
from llamad.config.settings import ModelSpec, Problem
from llamad.errors import LlamadError
from llamad.wire.child import LINE_BYTES_MAX, Item, Report, State, encode


class Reports(Protocol):
    """The way to the parent."""

    def send(self, report: Report) -> None:
        """Send one line."""
        ...


def run(link: Reports, body: Mapping[str, Any]) -> int:
    """Scan by the daemon's own command line, `body["argv"]`, and this process's environment. Always 0.

    `body["environ"]` has what is too secret for an environment, and counts as if it were there. Raises LlamadError if
    the document has no command line, or one that cannot be understood.
    """
    argv = _argv(body)
    link.send(State("scanning"))
    loaded = load(argv, {**os.environ, **(body.get("environ") or {})}, settled=True)
    link.send(Item({"item": "settings", "settings": loaded.settings.to_document()}))
    for spec in loaded.registry.models.values():
        link.send(_model(spec))
    for problem in loaded.registry.problems:
        link.send(_problem(problem))
    link.send(State("scanned"))
    return 0


def _argv(body: Mapping[str, Any]) -> Sequence[str]:
    argv = body.get("argv")
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise LlamadError("cannot scan: the start document has no command line", kind="bad-start")
    return argv


def _model(spec: ModelSpec) -> Item:
    """The model, or the problem that it does not fit into a line of the pipe."""
    item = Item({"item": "model", "model": spec.to_document()})
    size_bytes = len(encode(item))
    if size_bytes <= LINE_BYTES_MAX:
        return item
    message = f"cannot serve '{spec.name}': its options take {size_bytes} bytes, at most {LINE_BYTES_MAX}"
    return _problem(Problem(spec.path, 0, message, model=spec.name))


def _problem(problem: Problem) -> Item:
    """What is wrong may be a name that is not UTF-8, which no JSON can carry as it is."""
    shown = {
        key: _shown(value) if isinstance(value, str) else value
        for key, value in problem.to_document().items()
    }
    return Item({"item": "problem", "problem": shown})


def _shown(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
