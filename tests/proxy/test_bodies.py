"""What bodies take of a worker's memory: shared, bounded, and given back."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.errors import RequestError, UnavailableError
from llamad.proxy import bodies
from llamad.proxy.bodies import SMALL_BYTES, Bodies, Holding
from llamad.proxy.gate import CLIENT
from llamad.proxy.request import BODIES_KEY, CLEANUP_KEY, Request
from llamad.units import GIB, MIB

LARGEST = 128 * MIB


def fill(room: Bodies, client: str, step: int = MIB) -> int:
    """How much this client gets."""
    before = room.total_bytes

    def take_all() -> None:
        while True:
            room.take(client, step)

    with pytest.raises(UnavailableError) as caught:
        take_all()
    assert (caught.value.status, caught.value.kind) == (503, "bodies-full")
    return room.total_bytes - before


def test_one_client_gets_half_and_there_is_room_for_another():
    room = Bodies(LARGEST)
    assert fill(room, "a") == GIB // 2
    assert fill(room, "b") == GIB // 4
    assert fill(room, "a") == 0
    assert fill(room, "c") == GIB // 8
    room.give_back("a", GIB // 2)
    assert fill(room, "b") > 0


def test_the_largest_body_is_always_taken_from_one_who_is_alone():
    room = Bodies(4 * GIB)
    mine = Holding(room, "a")
    mine.announce(4 * GIB)
    for size in range(0, 4 * GIB + 1, 256 * MIB):
        mine.grow_to(size)
    mine.end()
    mine.end()
    assert room.total_bytes == 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 300)), max_size=80))
def test_it_never_holds_more_than_there_is_and_a_newcomer_always_gets_some(steps: list[tuple[str, int]]):
    room = Bodies(LARGEST)
    for client, size in steps:
        before = room.total_bytes
        try:
            room.take(client, size * MIB)
        except UnavailableError:
            assert room.total_bytes == before
        assert room.total_bytes < GIB
        room.check("newcomer", (GIB - room.total_bytes) // 2)


def read(room: Bodies, chunks: list[bytes], client: str = "a", declared: int | None = None) -> bytes:
    """A request's body as a handler reads it."""
    length = sum(map(len, chunks)) if declared is None else declared
    before = room.total_bytes
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "headers": [(b"content-length", str(length).encode())],
        BODIES_KEY: room,
        CLIENT: client,
    }
    events = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]

    async def receive() -> dict[str, Any]:
        return events.pop(0) if events else {"type": "http.disconnect"}

    async def reading() -> bytes:
        with ExitStack() as cleanup:
            scope[CLEANUP_KEY] = cleanup
            events[-1]["more_body"] = False
            body = await Request(scope, receive).read_body(LARGEST)
            assert room.total_bytes - before == (len(body) if len(body) > SMALL_BYTES else 0)
            return bytes(body)

    return asyncio.run(reading())


def test_a_request_holds_its_body_until_its_call_ends():
    room = Bodies(LARGEST)
    assert len(read(room, [b"x" * SMALL_BYTES])) == SMALL_BYTES
    assert len(read(room, [b"x" * SMALL_BYTES] * 3)) == 3 * SMALL_BYTES
    with pytest.raises(RequestError, match="in time"):
        read(room, [b"x" * SMALL_BYTES] * 3, declared=LARGEST)
    assert room.total_bytes == 0


def test_who_has_too_much_here_is_refused_before_and_within_a_body(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bodies, "TOTAL_BYTES_MIN", 0)
    room = Bodies(MIB)
    room.take("a", MIB - SMALL_BYTES)
    with pytest.raises(UnavailableError, match="are held already"):
        read(room, [b"x"], declared=MIB // 2)
    assert len(read(room, [b"x"] * 8)) == 8, "small ones are"
    with pytest.raises(UnavailableError):
        read(room, [b"x" * SMALL_BYTES] * 4, declared=SMALL_BYTES)
    assert len(read(room, [b"x" * (MIB // 4)], client="b")) == MIB // 4
