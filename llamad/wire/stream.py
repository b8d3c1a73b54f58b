"""Conversations between a front and an instance: what is said beside plain HTTP.

* A request with `X-Llamad-Ticket: N` (N > 0) is a conversation: the instance does not end it when the connection ends.
  Ids are the client's and may be anybody's, so instances know conversations by their tickets alone. The front sets the
  field, and drops it from what clients send.
* `GET /v1/stream?…&from=N` with the same field replays the output from byte N on.
* `POST /v1/streams/lookup` takes `{"tickets": [N, …]}` and gives a `Status` for each that is there; clients name ids
  instead, and get the ids back.
"""

from __future__ import annotations

import msgspec

from llamad.errors import ProtocolError

TICKET_HEADER = "x-llamad-ticket"
ID_HEADER = "x-conversation-id"
STREAM_PATH = "/v1/stream"
LOOKUP_PATH = "/v1/streams/lookup"


class Status(msgspec.Struct, frozen=True):
    """How far one conversation is. Times in seconds since the epoch, `completed_at` 0: not yet."""

    ticket: int
    is_done: bool
    total_bytes: int
    started_at: int
    completed_at: int


class Tickets(msgspec.Struct, frozen=True):
    """The body of a lookup."""

    tickets: list[int]


encode = msgspec.json.Encoder().encode
_decode_tickets = msgspec.json.Decoder(Tickets).decode
_decode_statuses = msgspec.json.Decoder(list[Status]).decode


def parse_tickets(body: bytes) -> list[int]:
    """Raises ProtocolError."""
    try:
        return _decode_tickets(body).tickets
    except msgspec.DecodeError as error:
        raise ProtocolError(f"cannot read a lookup: {error}") from error


def parse_statuses(body: bytes) -> list[Status]:
    """Raises ProtocolError."""
    try:
        return _decode_statuses(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"cannot read the answer to a lookup: {error}") from error


def parse_ticket(value: str | bytes | None) -> int:
    """The field's value; 0 for none."""
    return int(value) if value and len(value) < 20 and value.isascii() and value.isdigit() else 0
