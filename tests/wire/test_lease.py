"""The lease socket: both ends wired back to back, split at every byte."""

from __future__ import annotations

import pytest

from llamad.errors import ProtocolError
from llamad.wire import lease as wire
from llamad.wire.lease import (
    Ask,
    Cancel,
    Detach,
    Ended,
    Found,
    Granted,
    Held,
    Hello,
    Lookup,
    Place,
    Progress,
    Queued,
    Refused,
    Release,
    Stop,
    Stopped,
    SupervisorSide,
    Where,
    WorkerSide,
)

FROM_WORKER = [
    Hello(17, [Held(3, 9, "a")]),
    Ask(1, "org/model:Q4 ü", autoload=False),
    Ask(2, "a", load=False, avoid=7),
    Cancel(1),
    Release(2, "died", 502, 1234, 0.5),
    Ask(3, "a", slot=False, progress=True, conversation="c::a", owner="alice", ticket=4),
    Detach(3),
    Where(4, "c::a", "alice"),
    Lookup(5, ["c", "d"]),
    Stop(6, "c::a", "alice"),
]
FROM_SUPERVISOR = [
    Queued(1, 2),
    Granted(1, 4, "a", "127.0.0.1:4711", "secret"),
    Refused(2, "queue-full", 429, "cannot queue", 5.0, {"n": 1}),
    Ended(1, "instance-died", "cannot finish"),
    Progress(1, 0.5),
    Granted(3, 4, "a", "unix:/run/i.sock", "secret", ticket=12),
    Found(5, [Place("c::a", 1700000000, ticket=12, address="127.0.0.1:1", token="t"), Place("d", 1, True)]),
    Stopped(6),
]


def test_a_workers_messages_arrive_split_at_every_byte() -> None:
    side, seen = SupervisorSide(), []
    for byte in b"".join(map(wire.encode, FROM_WORKER)):
        seen += side.feed(bytes([byte]))
    assert seen == FROM_WORKER


def test_a_supervisors_messages_arrive_all_at_once() -> None:
    assert WorkerSide().feed(b"".join(map(wire.encode, FROM_SUPERVISOR))) == FROM_SUPERVISOR


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"ask","lease":1,"model":"a"}\n',
        b'{"type":"hello","pid":1}\n{"type":"hello","pid":1}\n',
        b'{"type":"hello","pid":"x"}\n',
        b'{"type":"granted","lease":1}\n',
        b"not json\n",
        b"x" * (wire.LINE_BYTES_MAX + 1),
    ],
    ids=["ask-before-hello", "hello-twice", "wrong-type", "wrong-direction", "no-json", "endless-line"],
)
def test_a_broken_message_is_a_protocol_error(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        SupervisorSide().feed(line)


def test_the_table_knows_no_way_out_of_an_end() -> None:
    ends = {wire.LeaseState.REFUSED, wire.LeaseState.CANCELLED, wire.LeaseState.RELEASED}
    ends.add(wire.LeaseState.DETACHED)
    assert {state for state, ways in wire.TRANSITIONS.items() if not ways} == ends
    reached = {to for ways in wire.TRANSITIONS.values() for to in ways.values()}
    assert reached | {wire.LeaseState.ASKED} == set(wire.LeaseState)
