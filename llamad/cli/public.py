"""The public port as a chat client sees it: which address, and one streamed answer as parsed chunks."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llamad.cli.client import LINE_BYTES_MAX, READ_BYTES, Document, error_from_answer
from llamad.cli.exits import UnreachableError
from llamad.errors import ChildError, ConflictError, LlamadError
from llamad.wire.lines import LineBuffer

if TYPE_CHECKING:
    from requests import Response, Session

CONNECT_WITHIN_S = 10.0
UNIX = "unix:"
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "*": "127.0.0.1", "": "127.0.0.1"}
"""Where to reach a listener on all addresses from the same machine."""


class PublicPort:
    """One caller of one public listener. `api_key` "": none is sent.

    With `tls` the certificate is not checked: it is for the port's public name, and the address came over the admin
    socket of this machine. Raises ConflictError for TLS on a Unix socket.
    """

    def __init__(self, listener: str, api_key: str = "", *, tls: bool = False) -> None:
        if tls and listener.startswith(UNIX):
            raise ConflictError(f"cannot chat: llamad listens with TLS on a Unix socket only ({listener})")
        self._listener = listener
        scheme = "https://" if tls else "http://"
        self._url = scheme + (_host_port(listener) if not listener.startswith(UNIX) else "llamad")
        self._api_key = api_key

    def chat(self, body: Document) -> Generator[Document, None, None]:
        """The chunks of a streamed chat completion, as they come.

        Raises LlamadError for an error answer, an error frame, or an answer that breaks off before its end marker.
        """
        from requests import exceptions
        from urllib3.exceptions import HTTPError

        with self._connection() as session:
            try:
                with session.post(
                    f"{self._url}/v1/chat/completions",
                    json={**body, "stream": True},
                    stream=True,
                    timeout=(CONNECT_WITHIN_S, None),
                ) as response:
                    yield from _chunks(response)
            except exceptions.ConnectionError as error:
                raise UnreachableError(f"cannot reach llamad's public port at {self._listener}") from error
            except (exceptions.RequestException, HTTPError, OSError) as error:
                raise ChildError("cannot go on: the answer broke off") from error

    def _connection(self) -> Session:
        from requests import Session

        session = Session()
        session.trust_env = False
        if self._url.startswith("https:"):
            from urllib3 import disable_warnings
            from urllib3.exceptions import InsecureRequestWarning

            session.verify = False
            disable_warnings(InsecureRequestWarning)
        if self._api_key:
            session.headers["Authorization"] = f"Bearer {self._api_key}"
        if self._listener.startswith(UNIX):
            from llamad.cli.unix_http import UnixAdapter

            session.mount(self._url, UnixAdapter(Path(self._listener.removeprefix(UNIX))))
        return session


def choose_listener(listeners: Sequence[str]) -> str:
    """The listener to chat through: TCP before Unix, as a file's permissions may be meant for a web server alone."""
    if not listeners:
        raise ConflictError("cannot chat: llamad has no public listener")
    return min(listeners, key=lambda listener: listener.startswith(UNIX))


def _host_port(listener: str) -> str:
    host, _, port = listener.removeprefix("http://").rpartition(":")
    return f"{ANY_ADDRESS.get(host, host)}:{port}"


def _chunks(response: Response) -> Iterator[Document]:
    if not response.ok:
        raise error_from_answer(response.status_code, _json_or_none(response.text))
    buffer = LineBuffer(LINE_BYTES_MAX)
    while data := response.raw.read1(READ_BYTES, decode_content=True):
        for line in buffer.feed(data):
            if not line.startswith(b"data:"):
                continue
            payload = line.removeprefix(b"data:").strip()
            if payload == b"[DONE]":
                return
            yield _chunk(payload)
    raise ChildError("cannot go on: the answer broke off before its end")


def _chunk(payload: bytes) -> Document:
    document = _json_or_none(payload)
    if not isinstance(document, dict):
        raise LlamadError("cannot read a piece of the answer: it is no JSON object")
    error = document.get("error")
    if isinstance(error, dict):
        raise error_from_answer(int(error.get("code") or 500), document)
    return document


def _json_or_none(data: str | bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return None
