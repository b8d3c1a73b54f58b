"""What a front and an instance say about conversations."""

from __future__ import annotations

import pytest

from llamad.errors import ProtocolError
from llamad.wire import stream


def test_lookups_survive_the_wire() -> None:
    assert stream.parse_tickets(stream.encode(stream.Tickets([1, 2]))) == [1, 2]
    statuses = [stream.Status(7, True, 10, 1, 2)]
    assert stream.parse_statuses(stream.encode(statuses)) == statuses


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"tickets": ["x"]}', b"\xff"])
def test_a_broken_lookup_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        stream.parse_tickets(body)
    with pytest.raises(ProtocolError):
        stream.parse_statuses(body)


@pytest.mark.parametrize(
    ("value", "ticket"),
    [(None, 0), ("", 0), ("7", 7), (b"7", 7), ("-7", 0), ("x", 0), ("9" * 30, 0), ("٣", 0)],
)
def test_a_ticket_is_a_number_or_none(value: str | bytes | None, ticket: int) -> None:
    assert stream.parse_ticket(value) == ticket
