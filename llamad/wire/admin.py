"""The admin socket's HTTP/1.1, sans IO: a server connection over h11 with bounds on head, body and pipelining.

Bytes go in with `receive`, requests come out of `next_request`, one at a time: the next one only after the answer to the
one before. Answers go in as `answer` (whole) or `begin`, `chunk`, `finish` (a stream), and bytes come out.

    IDLE --whole request--> ASKED --answer--> IDLE
                            ASKED --begin--> STREAMING --finish--> IDLE
    (any) --broken or oversized request, "connection: close"--> CLOSED after the answer
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import h11
import msgspec

from llamad.errors import ProtocolError, RequestError

HEAD_BYTES_MAX = 32 * 1024
BODY_BYTES_MAX = 1 << 20
PIPELINED_BYTES_MAX = 64 * 1024
QUERY_FIELDS_MAX = 100

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Request(msgspec.Struct, frozen=True):
    """A whole request. `path` is as it was sent, still percent-encoded, without the query."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""

    def document(self) -> dict[str, Any]:
        """The body as a JSON object, `{}` for none. Raises RequestError."""
        if not self.body.strip():
            return {}
        try:
            document = _decode(self.body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RequestError(f"cannot read the body as JSON: {error}") from error
        if not isinstance(document, dict):
            raise RequestError("cannot use the body: it is no JSON object")
        return document

    def wants(self, name: str) -> bool:
        """Whether a query flag such as `follow` is set."""
        return self.query.get(name, "").lower() in ("1", "true", "on", "yes")

    def count(self, name: str, default: int, most: int) -> int:
        """A number from the query, cut to `most`. Raises RequestError."""
        text = self.query.get(name)
        if text is None:
            return default
        if not text.isdecimal():
            raise RequestError(f"cannot use {name}={text!r}: a number from 0 to {most} is wanted")
        return min(int(text[:9]), most)


class ServerConnection:
    """One connection's protocol. Raises ProtocolError only for misuse by its owner."""

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._asked = False

    @property
    def closes(self) -> bool:
        """Whether nothing can follow the answer that is under way or done."""
        return self._h11.our_state in (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)

    @property
    def idle(self) -> bool:
        """Whether the peer owes us a request rather than we an answer."""
        return not self._asked

    def receive(self, data: bytes) -> None:
        """Store what came. Raises RequestError: `answer` it and close."""
        try:
            self._h11.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise RequestError(f"cannot read the request: {error}") from error
        if self._asked and len(self._h11.trailing_data[0]) > PIPELINED_BYTES_MAX:
            raise RequestError(
                f"cannot take more than {PIPELINED_BYTES_MAX} bytes before the answer", status=413
            )

    def invitation(self) -> bytes:
        """What a client that asks before it sends its body is waiting for, to send after `next_request`."""
        if self._h11.they_are_waiting_for_100_continue:
            return self._sent(h11.InformationalResponse(status_code=100, headers=[]))
        return b""

    def next_request(self) -> Request | None:
        """The next whole request, or None while there is none. Raises RequestError as `receive` does."""
        if self._asked:
            return None
        while True:
            event = self._next_event()
            if isinstance(event, h11.Request):
                self._head = event
                self._refuse_early(event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                self._refuse_over(len(self._body))
            elif isinstance(event, h11.EndOfMessage):
                return self._whole_request()
            else:
                return None

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> bytes:
        """The whole answer to the request at hand."""
        headers = [*headers, ("Content-Length", str(len(body)))]
        data = self.begin(status, headers)
        return data + self.chunk(body) + self.finish()

    def begin(self, status: int, headers: list[tuple[str, str]]) -> bytes:
        """The head of an answer; without a Content-Length its body goes out in chunks."""
        if self._h11.their_state is not h11.DONE:
            # Answered before the request was whole: what follows of it must not be read as another one.
            headers = [*headers, ("Connection", "close")]
        return self._sent(h11.Response(status_code=status, headers=headers))

    def chunk(self, data: bytes) -> bytes:
        """Some of the body; nothing of it goes out where only the head was asked for."""
        return self._sent(h11.Data(data=data)) if data and not self._is_head() else b""

    def finish(self) -> bytes:
        """The end of the answer. Another request may follow unless `closes`."""
        data = self._sent(h11.EndOfMessage())
        self._asked = False
        self._head = None
        self._body.clear()
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        return data

    def _next_event(self) -> Any:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint if error.error_status_hint != 431 else 413
            raise RequestError(f"cannot read the request: {error}", status=status) from error

    def _whole_request(self) -> Request:
        assert self._head is not None
        self._asked = True
        path, _, query = self._head.target.decode("latin-1").partition("?")
        return Request(
            method=self._head.method.decode("ascii"),
            path=path,
            query=_parsed_query(query),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in self._head.headers},
            body=bytes(self._body),
        )

    def _refuse_early(self, head: h11.Request) -> None:
        for name, value in head.headers:
            if name == b"content-length":
                self._refuse_over(int(value))

    def _refuse_over(self, count: int) -> None:
        if count > BODY_BYTES_MAX:
            raise RequestError(f"cannot take a body of {count} bytes: at most {BODY_BYTES_MAX}", status=413)

    def _is_head(self) -> bool:
        return self._head is not None and self._head.method == b"HEAD"

    def _sent(self, event: Any) -> bytes:
        try:
            return self._h11.send(event) or b""
        except h11.LocalProtocolError as error:
            raise ProtocolError(f"cannot send this answer: {error}", remote=False) from error


def _parsed_query(query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX))
    except ValueError as error:
        raise RequestError(f"cannot take a query of more than {QUERY_FIELDS_MAX} fields") from error


def json_bytes(document: Any) -> bytes:
    """A document as it goes over the wire, with a newline for those who read it with curl."""
    return _encode(document) + b"\n"
