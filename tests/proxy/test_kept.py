"""What may be kept, for how long, and for whom."""

from __future__ import annotations

from typing import Any

import pytest

from llamad.proxy.kept import KeptLeases, Kind, kind_of
from llamad.proxy.lease import Lease
from llamad.wire import lease as wire

CHAT = Kind("chat", None, "a", True)


class Bench:
    def __init__(self) -> None:
        self.kept = KeptLeases()
        self._next = 0

    def lease(self, kind: Kind | None = CHAT, serves_until: float = 10.0) -> Lease:
        """As it is granted now. The future of its child's end is of no matter here."""
        self._next += 1
        made = Lease.__new__(Lease)
        made.number, made.kind, made.recalls = self._next, kind, self.kept.recalls
        made.serves_until = made.kept_until = serves_until
        return made


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_lease_serves_the_next_of_its_kind(bench: Bench):
    lease = bench.lease()
    assert bench.kept.put(lease, 1.0)
    assert bench.kept.take(CHAT._replace(client="b"), 1.0) is None
    assert bench.kept.take(CHAT._replace(model="other"), 1.0) is None
    assert bench.kept.take(CHAT, 1.0) is lease
    assert bench.kept.take(CHAT, 1.0) is None


def test_none_serves_beyond_its_time(bench: Bench):
    assert not bench.kept.put(bench.lease(serves_until=10.0), 10.0)
    lease = bench.lease(serves_until=10.0)
    assert bench.kept.put(lease, 9.99)
    assert bench.kept.take(CHAT, 10.0) is None
    assert bench.kept.expired(9.99) == []
    assert bench.kept.next_end() == 10.0
    assert bench.kept.expired(10.0) == [lease]
    assert len(bench.kept) == 0
    assert bench.kept.next_end() is None


def test_none_is_kept_for_long_without_requests(bench: Bench):
    lease = bench.lease(serves_until=10.0)
    for now in (1.0, 1.0 + 0.9 * wire.KEEP_S):
        assert bench.kept.put(lease, now)
        assert bench.kept.next_end() == now + wire.KEEP_S
        assert bench.kept.take(CHAT, now + 0.9 * wire.KEEP_S) is lease
    assert bench.kept.put(lease, 2.0)
    assert bench.kept.take(CHAT, 2.0 + wire.KEEP_S) is None
    assert bench.kept.expired(2.0 + wire.KEEP_S) == [lease]


def test_none_is_kept_without_leave(bench: Bench):
    assert not bench.kept.put(bench.lease(kind=None), 1.0)


def test_a_recall_takes_what_is_kept_and_what_is_in_use(bench: Bench):
    idle, used = bench.lease(), bench.lease()
    assert bench.kept.put(idle, 1.0)
    assert bench.kept.recall() == [idle]
    assert not bench.kept.put(used, 1.0)
    assert bench.kept.put(bench.lease(), 1.0)


def test_the_end_of_a_child_takes_its_lease(bench: Bench):
    lease, other = bench.lease(), bench.lease()
    bench.kept.put(lease, 1.0)
    bench.kept.put(other, 1.0)
    assert bench.kept.ended(lease.number) == [lease]
    assert bench.kept.ended(99) == []
    assert bench.kept.take(CHAT, 1.0) is other


@pytest.mark.parametrize(
    "fields",
    [{"load": False}, {"avoid": 3}, {"conversation": "c"}],
)
def test_some_requests_always_ask(fields: dict[str, Any]):
    assert kind_of(wire.Ask(1, "chat", **fields)) is None


def test_others_differ_by_what_decides_about_a_grant():
    kinds = {
        kind_of(wire.Ask(1, "chat", **fields))
        for fields in ({}, {"client": "a"}, {"autoload": False}, {"slot": False})
    }
    assert len(kinds) == 4
    assert kind_of(wire.Ask(1, "chat", progress=True)) == kind_of(wire.Ask(2, "chat"))
    assert kind_of(wire.Where(1, "c")) is None


def test_those_used_last_are_given_back_last(bench: Bench):
    kinds = [CHAT._replace(model=name) for name in "abcdefgh"]
    leases = [bench.lease(kind) for kind in kinds]
    order = [3, 0, 7, 5, 1, 6, 2, 4]
    for place, index in enumerate(order):
        assert bench.kept.put(leases[index], 1.0 + place / 1000)
    assert bench.kept.recall() == [leases[index] for index in order]
