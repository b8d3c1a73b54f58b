"""Leases between two requests: what has served one small request may serve the next of its kind without a word.

Asking takes two processes to wake, which is half of what the front adds to a small request. So with the supervisor's leave
a lease is good for SERVE_S from its grant, or until it is called back, as long as the next request comes within KEEP_S. To the
supervisor it is a lease all that while: nothing is evicted, put to sleep or replaced under it. A request that takes longer
than that ends its lease as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llamad.wire import lease as wire

if TYPE_CHECKING:
    from llamad.proxy.lease import Lease


class Kind(NamedTuple):
    """Requests that may share a lease."""

    model: str
    autoload: bool | None
    client: str
    slot: bool


def kind_of(request: wire.Ask | wire.Where) -> Kind | None:
    """None: it has to ask, whatever is kept."""
    if not isinstance(request, wire.Ask) or not request.load or request.avoid or request.conversation:
        return None
    return Kind(request.model, request.autoload, request.client, request.slot)


class KeptLeases:
    """Those of one worker that serve nothing just now."""

    def __init__(self) -> None:
        self._by_kind: dict[Kind, list[Lease]] = {}
        self._recalls = 0

    def __len__(self) -> int:
        return sum(len(leases) for leases in self._by_kind.values())

    @property
    def recalls(self) -> int:
        """A lease that was granted before the last of them is not kept."""
        return self._recalls

    def put(self, lease: Lease, now: float) -> bool:
        """Keep a lease whose request is over, if it may be."""
        if lease.kind is None or lease.recalls != self._recalls or now >= lease.serves_until:
            return False
        lease.kept_at, lease.kept_until = now, min(now + wire.KEEP_S, lease.serves_until)
        self._by_kind.setdefault(lease.kind, []).append(lease)
        return True

    def take(self, kind: Kind, now: float) -> Lease | None:
        """The one that was put last, if it is still good."""
        leases = self._by_kind.get(kind)
        if not leases or leases[-1].kept_until <= now:
            return None
        taken = leases.pop()
        if not leases:
            del self._by_kind[kind]
        return taken

    def expired(self, now: float) -> list[Lease]:
        """Those that are good no more; they are out."""
        return self._out({lease for lease in self._all() if lease.kept_until <= now})

    def ended(self, number: int) -> list[Lease]:
        """The process behind this one is gone; it is out, if it was in."""
        return self._out({lease for lease in self._all() if lease.number == number})

    def recall(self) -> list[Lease]:
        """All of them are out, and none that is granted by now will be kept."""
        self._recalls += 1
        return self._out(set(self._all()))

    def next_end(self) -> float | None:
        return min((lease.kept_until for lease in self._all()), default=None)

    def _all(self) -> list[Lease]:
        return [lease for leases in self._by_kind.values() for lease in leases]

    def _out(self, gone: set[Lease]) -> list[Lease]:
        """Those used last come last: the supervisor takes the order of their ends for that of their use."""
        left = {kind: [one for one in leases if one not in gone] for kind, leases in self._by_kind.items()}
        self._by_kind = {kind: leases for kind, leases in left.items() if leases}
        return sorted(gone, key=lambda lease: lease.kept_at)
