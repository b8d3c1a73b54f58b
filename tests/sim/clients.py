"""Clients and the proxy workers that ask for them. Clients leave, workers die, reconnect and repeat themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import LeaseKey

if TYPE_CHECKING:
    from tests.sim.world import World

REQUEST_TAKES_S = 90.0
"""The longest request, in any world."""
BRISK_S = (0.01, 0.1, 0.5)
LASTING_S = (0.01, 0.5, 5.0, 60.0)
"""What requests take, give or take a half. In brisk worlds models are idle more often than not."""
DETACHED = 0
"""The worker of leases that belong to none."""


@dataclass
class Lease:
    """One request. `model` is the id that the asked name stands for.

    `keeps`: while it is held its process is busy. `uses`: its end is the model's last use. `slot`: it takes a slot. `load`
    is False for one that only reads, which does none of these.
    """

    key: LeaseKey
    model: str
    asked_at: float
    leapt_s: float
    load: bool = True
    keeps: bool = True
    uses: bool = True
    slot: bool = True
    autoload: bool | None = None
    avoid: int = 0
    child: int = 0
    answered: bool = False
    waited_s: float = 0.0
    over: bool = False


class Clients:
    def __init__(self, world: World) -> None:
        self.w = world
        self.leases: dict[LeaseKey, Lease] = {}
        self.waiting: dict[LeaseKey, Lease] = {}
        """Asked and neither answered nor gone, in order of arrival."""
        self.holding: dict[int, dict[LeaseKey, Lease]] = {}
        """Granted and not over, by child."""
        self.workers = [1, 2]
        self._numbers = 0
        self._served_by: list[int] = []
        """Children that ever served somebody."""

    def users(self, child: int) -> list[Lease]:
        """Leases that keep `child` busy."""
        return [lease for lease in self.holding.get(child, {}).values() if lease.keeps]

    def waiters(self, model: str) -> list[Lease]:
        return [lease for lease in self.waiting.values() if lease.model == model and lease.load]

    # ---- asking

    def ask(self, name: str, **fields: Any) -> Lease:
        """A request for the model or alias `name`, right now."""
        lease = self._new(name.split(":")[0])
        lease.load = lease.keeps = lease.uses = fields.get("load", True)
        lease.slot = fields.get("slot", True)
        lease.autoload, lease.avoid = fields.get("autoload"), fields.get("avoid", 0)
        self.waiting[lease.key] = lease
        self.w.step(e.LeaseAsked(lease.key, name, **fields))
        return lease

    def _new(self, model: str) -> Lease:
        self._numbers += 1
        key = LeaseKey(self.w.rng.choice(self.workers), self._numbers)
        lease = self.leases[key] = Lease(key, model, self.w.now, self.w.agenda.leapt_s)
        return lease

    def ask_something(self) -> None:
        rng, fields = self.w.rng, dict[str, Any]()
        if rng.random() < 0.12:
            fields["load"] = False
        if rng.random() < 0.05:
            fields["autoload"] = rng.random() < 0.5
        if rng.random() < 0.05 and self._served_by:
            fields["avoid"] = rng.choice(self._served_by)
        if rng.random() < 0.05:
            fields["slot"] = False
        if rng.random() < 0.5:
            fields["client"] = rng.choice("xyz")
        names = self.w.names
        chosen = min(int(rng.expovariate(3 / len(names))), len(names) - (1 if self.w.calm else 0))
        name = f"m{chosen}" + rng.choice(["", "", ":alias"])
        lease = self.ask(name, **fields)
        if rng.random() < 0.2:
            self.w.later(rng.expovariate(1 / 5), lambda: self._leave(lease))

    def _leave(self, lease: Lease) -> None:
        """The client hangs up. Its cancel may cross the grant: then it is a release."""
        if lease.over:
            return
        crossed = self.w.rng.random() < 0.2
        released = lease.answered and not crossed
        self._end(lease)
        self.w.step(e.LeaseReleased(lease.key) if released else e.LeaseCancelled(lease.key))

    def _end(self, lease: Lease) -> None:
        lease.over = True
        self.waiting.pop(lease.key, None)
        mine = self.holding.get(lease.child, {})
        mine.pop(lease.key, None)
        process = self.w.processes.live.get(lease.child)
        if process is not None and lease.uses:
            process.used_at = self.w.now

    def repeat(self) -> None:
        """A worker says what is long said."""
        over = [lease for lease in self._lately() if lease.over]
        if over:
            key = self.w.rng.choice(over).key
            released = self.w.rng.random() < 0.5
            self.w.step(e.LeaseReleased(key) if released else e.LeaseCancelled(key))

    def _lately(self) -> list[Lease]:
        return [lease for number in range(20) for lease in self._numbered(self._numbers - number)]

    def _numbered(self, number: int) -> list[Lease]:
        return [
            lease
            for worker in self.workers
            if (lease := self.leases.get(LeaseKey(worker, number))) is not None
        ]

    # ---- answers

    def queued(self, action: a.QueueLease) -> None:
        pass

    def granted(self, action: a.GrantLease) -> None:
        lease = self._answered(action.key)
        self._hold(lease, action.child)
        if lease.keeps and (not self._served_by or self._served_by[-1] != action.child):
            self._served_by.append(action.child)
        takes_s = self.w.rng.choice(BRISK_S if self.w.brisk else LASTING_S) * self.w.rng.uniform(0.5, 1.5)
        self.w.later(takes_s, lambda: self._served(lease))
        if lease.uses and self.w.rng.random() < 0.05:
            self.w.later(self.w.rng.uniform(0, takes_s), lambda: self._detach(lease))

    def _hold(self, lease: Lease, child: int) -> None:
        lease.child = child
        self.holding.setdefault(child, {})[lease.key] = lease

    def _served(self, lease: Lease) -> None:
        """The answer is complete; one that hangs is left by its client later."""
        if lease.over:
            return
        if self.w.processes.all[lease.child].hangs and self.w.rng.random() < 0.9:
            self.w.later(30.0, lambda: self._served(lease))
            return
        self._end(lease)
        self.w.step(e.LeaseReleased(lease.key))

    def _detach(self, lease: Lease) -> None:
        """The worker leaves it to the daemon (a conversation whose client hung up)."""
        if lease.over:
            return
        self._numbers += 1
        before, lease.key = lease.key, LeaseKey(DETACHED, self._numbers)
        self.leases[lease.key] = lease
        mine = self.holding[lease.child]
        del mine[before]
        if lease.slot:
            mine[lease.key] = lease
        else:  # one that takes no slot cannot go on by itself
            self._end(lease)
        self.w.seen["detached"] += 1
        self.w.step(e.LeaseDetached(before, lease.key))

    def follow(self) -> None:
        """Somebody reads on where a conversation went on without them, if its process is still there."""
        children = [child for child in self._served_by[-5:] if not self.w.processes.all[child].measures]
        if not children or self.w.stopping:
            return
        child = self.w.rng.choice(children)
        process = self.w.processes.all[child]
        lease = self._new(process.model)
        lease.load = lease.uses = False
        lease.keeps = process.ready and not process.gone
        self.waiting[lease.key] = lease
        self.w.seen["followed"] += 1
        self.w.step(e.LeaseFollowed(lease.key, child))

    def refused(self, action: a.RefuseLease) -> None:
        lease = self._answered(action.key)
        self._end(lease)
        if action.retry_after_s is not None and self.w.rng.random() < 0.1 and not self.w.stopping:
            # As it was told to, or without patience; some operators see to it themselves.
            after_s = self.w.rng.choice([action.retry_after_s, self.w.rng.uniform(0, 1)])
            self.w.later(after_s, lambda: self._come_back(lease.model))

    def _come_back(self, model: str) -> None:
        if self.w.stopping:
            return
        if not self.w.calm and self.w.rng.random() < 0.1:
            self.w.operators.order_load(model)
        self.ask(model)

    def ended(self, action: a.EndLease) -> None:
        """Its process is gone; where nothing was sent yet the worker asks once more."""
        lease = self.leases[action.key]
        self._end(lease)
        if lease.load and not lease.avoid and self.w.rng.random() < 0.5 and not self.w.stopping:
            self.w.later(0.0, lambda: self._ask_again(lease))

    def _ask_again(self, lease: Lease) -> None:
        self.ask(lease.model, avoid=lease.child)

    def _answered(self, key: LeaseKey) -> Lease:
        lease = self.leases[key]
        lease.answered = True
        lease.waited_s = self.w.now - lease.asked_at - (self.w.agenda.leapt_s - lease.leapt_s)
        self.waiting.pop(key, None)
        return lease

    # ---- workers

    def lose_worker(self) -> None:
        """A worker dies, or only its connection does: then it is back soon, with the leases that it holds."""
        rng = self.w.rng
        worker = rng.choice(self.workers)
        self._numbers += 1
        self.workers[self.workers.index(worker)] = successor = self._numbers
        mine = [lease for lease in self.leases.values() if lease.key.worker == worker and not lease.over]
        for lease in mine:
            self._end(lease)
        self.w.step(e.WorkerLost(worker))
        if rng.random() < 0.5:
            held = [lease for lease in mine if lease.answered and lease.uses]
            self.w.later(rng.uniform(0, 3), lambda: self._announce(successor, held))

    def _announce(self, worker: int, held: list[Lease]) -> None:
        if self.w.stopping or worker not in self.workers:
            return
        for old in held:
            self._numbers += 1
            key = LeaseKey(worker, self._numbers)
            lease = self.leases[key] = Lease(key, old.model, self.w.now, self.w.agenda.leapt_s)
            lease.answered = True
            self._hold(lease, old.child)
            self.w.later(self.w.rng.uniform(0, 30), lambda lease=lease: self._served(lease))  # type: ignore[misc]
            self.w.seen["announced"] += 1
            self.w.step(e.LeaseAnnounced(key, old.child))
