"""The admin API as a caller sees it: documents in and out, streams as lines, every failure a LlamadError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from llamad.cli.exits import UnreachableError
from llamad.errors import LlamadError, NotFoundError
from llamad.wire.lines import LineBuffer

if TYPE_CHECKING:
    from requests import Response, Session

Document = dict[str, Any]

ANSWER_WITHIN_S = 10.0
"""The daemon's loop never blocks: an answer that takes longer than this is not going to come."""
LINE_BYTES_MAX = 1 << 20
READ_BYTES = 64 * 1024
BASE_URL = "http://llamad"


def model_path(name: str, about: str = "models") -> str:
    """`/models/NAME`, percent-encoded whole: names have slashes and colons. `about`: another route of a model."""
    return f"/{about}/{quote(name, safe='')}"


class AdminClient:
    """One caller of one admin socket. Not shared between threads: each takes its own.

    Every method raises UnreachableError or NotAllowedError for what is wrong with the socket, and LlamadError (with
    the kind, status and details of the body) for an error that the daemon answers.
    """

    def __init__(self, socket_path: Path, timeout_s: float = ANSWER_WITHIN_S) -> None:
        self.socket_path = socket_path
        self._timeout_s = timeout_s

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Document:
        """The document at `path`."""
        with self._exchange("GET", path, self._timeout_s, params=params) as response:
            return _document(response)

    def post(self, path: str, body: Document, *, patient: bool = False) -> Document:
        """Ask for a change. `patient`: the answer comes when the change is done, however long that takes."""
        timeout_s = None if patient else self._timeout_s
        with self._exchange("POST", path, timeout_s, json=body) as response:
            return _document(response)

    def lines(self, path: str, params: Mapping[str, Any], *, follow: bool) -> Iterator[str]:
        """The lines of a text stream, each as soon as it is whole; with `follow` without an end in sight."""
        buffer = LineBuffer(LINE_BYTES_MAX, truncate=True)
        timeout_s = None if follow else self._timeout_s
        if follow:
            params = {**params, "follow": 1}
        with self._exchange("GET", path, timeout_s, params=params, stream=True) as response:
            # read1 and not iter_lines: the latter waits for a full block where the body has no chunks.
            while data := response.raw.read1(READ_BYTES, decode_content=True):
                yield from map(_text, buffer.feed(data))
            rest = buffer.flush()
            if rest is not None:
                yield _text(rest)

    @contextmanager
    def _exchange(
        self, method: str, path: str, timeout_s: float | None, **options: Any
    ) -> Iterator[Response]:
        from requests import exceptions
        from urllib3.exceptions import HTTPError

        with self._connection() as session:
            try:
                response = session.request(
                    method, BASE_URL + path, timeout=(self._timeout_s, timeout_s), **options
                )
                yield _checked(response)
            except (exceptions.Timeout, TimeoutError) as error:
                raise UnreachableError(
                    f"cannot get an answer from llamad at {self.socket_path} within {timeout_s or self._timeout_s:.0f} s"
                ) from error
            except (exceptions.RequestException, HTTPError, OSError) as error:
                raise UnreachableError(
                    f"cannot read llamad's answer at {self.socket_path}: it closed the connection"
                ) from error

    def _connection(self) -> Session:
        from requests import Session

        from llamad.cli.unix_http import UnixAdapter

        session = Session()
        # A proxy from the environment has no business in front of a Unix socket.
        session.trust_env = False
        session.mount(BASE_URL, UnixAdapter(self.socket_path))
        return session


def error_from_answer(status: int, document: object) -> LlamadError:
    """The error that an error body describes; a body that is none becomes one that says so."""
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return LlamadError(
            f"cannot understand the answer: HTTP {status} without an error body", status=status
        )
    details = {key: value for key, value in error.items() if key not in ("code", "message", "type", "kind")}
    message = str(error.get("message") or f"HTTP {status}")
    tree = NotFoundError if status == 404 else LlamadError
    return tree(message, kind=str(error.get("kind") or "") or None, status=status, details=details)


def _checked(response: Response) -> Response:
    if response.ok:
        return response
    try:
        document = response.json()
    except ValueError:
        document = None
    raise error_from_answer(response.status_code, document)


def _document(response: Response) -> Document:
    try:
        document = response.json()
    except ValueError as error:
        raise LlamadError(f"cannot read the answer as JSON: {error}") from error
    if not isinstance(document, dict):
        raise LlamadError("cannot use the answer: it is no JSON object")
    return document


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")
