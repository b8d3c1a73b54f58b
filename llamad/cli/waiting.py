"""A change of one model, asked for and waited for.

The outcome is the answer to the waiting POST and nothing else. On a terminal the POST runs in a thread while this
one draws a bar from `GET /models/NAME`: what the bar reads decides nothing. The thread is a daemon thread, so that
Ctrl-C ends llamactl at once; the daemon goes on with the change.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from llamad.cli.client import AdminClient, Document, model_path
from llamad.cli.models import progress_share
from llamad.cli.output import stderr_console
from llamad.errors import LlamadError

LOOK_EVERY_S = 0.2


def ask_change(
    client: AdminClient,
    path: str,
    body: Document,
    *,
    wait: bool,
    watcher: Callable[[], AdminClient],
    verb: str,
) -> Document:
    """The answer to POST `path`. `watcher` makes the second client that the bar reads with.

    Raises LlamadError when the end state is not the wanted one.
    """
    request = {**body, "wait": wait}
    if not wait or not sys.stderr.isatty():
        return client.post(path, request, patient=wait)
    change = _Change(client, path, request)
    change.start()
    _show_progress(change, watcher(), f"{verb} {body['model']}", str(body["model"]))
    return change.answer()


class _Change(threading.Thread):
    """One waiting POST."""

    def __init__(self, client: AdminClient, path: str, body: Document) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._path = path
        self._body = body
        self._ended = threading.Event()
        self._answer: Document = {}
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._answer = self._client.post(self._path, self._body, patient=True)
        except Exception as error:  # noqa: BLE001 - carried to the thread that waits
            self._error = error
        finally:
            self._ended.set()

    def ended(self, within_s: float) -> bool:
        return self._ended.wait(within_s)

    def answer(self) -> Document:
        if self._error is not None:
            raise self._error
        return self._answer


def _show_progress(change: _Change, client: AdminClient, title: str, model: str) -> None:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=stderr_console(), transient=True) as progress:
        task = progress.add_task(title, total=None)
        while not change.ended(LOOK_EVERY_S):
            share = _look(client, model)
            if share is not None:
                progress.update(task, total=1.0, completed=share)


def _look(client: AdminClient, model: str) -> float | None:
    try:
        return progress_share(client.get(model_path(model)).get("status") or {})
    except LlamadError:
        return None
