"""Those who wait for one model, and whose turn it is.

Turns go round the clients, so that one client's hundred requests do not hold back another's one; each client's own are
served in order of arrival. All operations are O(1), but for `counts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from llamad.core.events import LeaseKey


class Ticket(NamedTuple):
    """An operator that waits for an end state."""

    number: int


Who = LeaseKey | Ticket


@dataclass(frozen=True, slots=True)
class Waiter:
    """Someone who wants a model and cannot have it yet. `client` is empty for operators."""

    who: Who
    since: float
    client: str


class Waiters:
    """An ordered set. Operators are not served by turns: what they wait for is an end state, not a slot."""

    def __init__(self) -> None:
        self._arrived: dict[Who, Waiter] = {}
        self._turns: dict[str, dict[LeaseKey, None]] = {}

    def __len__(self) -> int:
        return len(self._arrived)

    def __iter__(self) -> Iterator[Who]:
        """In order of arrival."""
        return iter(self._arrived)

    def __contains__(self, who: Who) -> bool:
        return who in self._arrived

    @property
    def oldest(self) -> Waiter | None:
        return next(iter(self._arrived.values()), None)

    def add(self, who: Who, now: float, client: str = "") -> None:
        self._arrived[who] = Waiter(who, now, client)
        if isinstance(who, LeaseKey):
            self._turns.setdefault(client, {})[who] = None

    def remove(self, who: Who) -> None:
        waiter = self._arrived.pop(who)
        if isinstance(who, LeaseKey):
            mine = self._turns[waiter.client]
            del mine[who]
            if not mine:
                del self._turns[waiter.client]

    def next_lease(self) -> LeaseKey | None:
        """Remove and give the one whose turn it is; its client's next turn comes after everybody else's."""
        client = next(iter(self._turns), None)
        if client is None:
            return None
        mine = self._turns.pop(client)
        key = next(iter(mine))
        del mine[key]
        del self._arrived[key]
        if mine:
            self._turns[client] = mine
        return key

    def counts(self) -> dict[str, int]:
        """How many requests each client has waiting."""
        return {client: len(mine) for client, mine in self._turns.items()}

    def youngest(self, client: str) -> LeaseKey:
        """The last that came of a client that has any."""
        return next(reversed(self._turns[client]))

    def tickets(self) -> list[Ticket]:
        return [who for who in self._arrived if isinstance(who, Ticket)]

    def overdue(self, limit_s: float, now: float) -> list[Waiter]:
        """Those who have waited for `limit_s` or longer; computed as their timer is, to the last bit."""
        return list(takewhile(lambda waiter: waiter.since + limit_s <= now, self._arrived.values()))
