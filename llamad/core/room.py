"""Room: who in the queue gets it, and who has to leave for it.

The queue is walked from its head. What an entry needs is an amount on each device (`ledger`; the count of processes is
one). Each entry takes the first that there is of

1. free room: its process is spawned, or woken;
2. room that is about to be free, because processes are already on their way out: the entry waits;
3. room that sleepers, idle models (`policy.may_evict`) and loads that nobody waits for hold, the longest unused first,
   if all of them together would do. They leave one after another, each confirmed, and the rest is looked at again
   then: a device may turn out to have more than the books had hoped for;
4. nothing. When no wait can help it is refused at once, with the pins or the numbers. Otherwise it waits; once it has
   waited `drain_after_s`, busy models that hold what it lacks are closed for new leases, so that they become idle, and
   sleepers that wait behind it for room to wake leave. That bounds the wait of a cold model by `drain_after_s` and the
   longest running request, whatever steady clients others have.

Whether it got room or not, an entry's need is set aside before the next one is looked at. So a smaller model may pass the
head only with room that the head could not use anyway. No more entries are looked at than could get anything.

Drains are counted anew on each walk; who drains for nobody any more is lifted. So a client that gives up also gives back
what was closed for it.

Where memory is booked, the books are corrected by a look at the devices before each decision (`ReadMemory`).
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice

from llamad.core import lifecycle, measuring, placing
from llamad.core.actions import ReadMemory
from llamad.core.events import Amounts, Placement
from llamad.core.failures import NEED_GROWTH
from llamad.core.ledger import PROCESSES, added, short_of
from llamad.core.model import Drain, Model, State
from llamad.core.policy import drain_order, enough, may_drain, may_evict
from llamad.core.refusals import explain_shortage, pins_refusal, too_large_refusal
from llamad.core.state import Deadline, Refusal, SchedulerState, Timer

LOOK_AHEAD = 64
LIFTS_MAX = 2
FRESH_S = 0.1
REREAD_S = 1.0
REREAD_SOON_S = 0.05


def make_room(s: SchedulerState, now: float) -> None:
    """Walk the queue and act until nothing more can be done now."""
    s.stirred = s.queue.stirred = False
    s.timers.clear(Timer(Deadline.DRAIN))
    if s.queue and not _books_fresh(s, now):
        return
    again, lifted = bool(s.queue or s.draining), Counter[str]()
    while again:
        walk = _Walk(s, now, lifted)
        walk.run()
        walk.fit_drains()
        again = walk.again
    if s.queue and s.ledger.margin is not None:
        soon = REREAD_SOON_S if s.ledger.departing() else REREAD_S
        s.timers.set(Timer(Deadline.REREAD), now + soon)


def _books_fresh(s: SchedulerState, now: float) -> bool:
    """The devices were looked at just now; else ask for it, and decide when the answer comes."""
    if s.ledger.margin is None or (s.ledger.read_at is not None and now - s.ledger.read_at <= FRESH_S):
        return True
    if not s.reading:
        s.reading, s.asked_unsettled = True, not s.settled
        s.ledger.look()
        s.emit(ReadMemory())
    return False


def need_of(s: SchedulerState, model: Model) -> Amounts:
    """The least that `model` needs to run."""
    if model.state is State.SLEEPING:
        held = s.ledger.held_by(model.child)
        return {name: max(0, n - held.get(name, 0)) for name, n in lifecycle.wake_need(s, model).items()}
    return added({PROCESSES: 1}, _memory_need(s, model))


def _memory_need(s: SchedulerState, model: Model) -> Amounts:
    if s.ledger.margin is None:
        return {}
    growth = NEED_GROWTH**model.out_of_memory
    return {name: int(amount * growth) for name, amount in model.least.items()}


def reservation(s: SchedulerState, model: Model) -> dict[str, int] | None:
    """What to promise: all that it can use, if there is so much; else what there is, its least at least."""
    if s.ledger.margin is None or model.most is None:
        return None
    least, available = _memory_need(s, model), s.ledger.available()
    return {
        name: max(least.get(name, 0), min(amount, available.get(name, amount)))
        for name, amount in model.most.items()
    }


class _Walk:
    """One walk: what is free, and what will be, as it is set aside entry by entry."""

    def __init__(self, s: SchedulerState, now: float, lifted: Counter[str]) -> None:
        self._s = s
        self._now = now
        self._lifted = lifted
        """Whose drain has been lifted in this step, and how often. It may begin again for another one, but not for ever."""
        self._free = s.ledger.available()
        leaving = [s.ledger.held_by(s.models[name].child) for name in s.leaving]
        self._later = dict(self._free)
        for amounts in [*leaving, s.ledger.departing()]:
            self._expect(amounts)
        self._movable: dict[str, int] | None = None
        self._drains: dict[str, str] = {}
        self._ahead: set[str] = set()
        """Entries that have been looked at. A sleeper among them wakes first; nobody behind it may take its room."""
        self.again = False
        """Entries have left the queue on this walk: who is behind them may get more on another one."""

    def run(self) -> None:
        limit = 2 * device.total + 1 if (device := self._s.ledger.device(PROCESSES)) else LOOK_AHEAD
        for name in list(islice(self._s.queue, limit)):
            if not self._entry(self._s.models[name]):
                break
            self._ahead.add(name)

    def _entry(self, model: Model) -> bool:
        """Serve one entry as far as it goes. False: nobody behind it can get anything."""
        s, need = self._s, need_of(self._s, model)
        if model.state not in (State.UNLOADED, State.SLEEPING):
            self._set_aside(need)  # a process of its own has to end first
            return True
        if model.state is State.UNLOADED and measuring.wanted(s, model):
            measuring.begin(s, model, self._now)
            self._set_aside(need)
            return True
        if self._choose_placement(model):
            need = need_of(s, model)
        if short_of(need, self._free):
            if refusal := self._refusal(model, need):
                self._refuse(model, refusal)
                return True
            need = self._leave_out_hopeless(model, need)
        if not self._evict_one_more(model) and not short_of(need, self._free):
            self._start(model, need)
            return True
        short = short_of(need, self._later)
        served = not short or self._evict_for(model, short) or self._overdue(model, short)
        self._set_aside(need)
        # Without a process to spare there is nothing for anybody behind it either, and they are younger.
        return served or self._later.get(PROCESSES, 1) > 0

    def _choose_placement(self, model: Model) -> bool:
        """Of several ways to put it on devices; anew each time, but while somebody is leaving for the way chosen.

        While busy models drain for it, another way is taken only if it does without them: else drains would begin
        and be lifted by turns.
        """
        ways = model.need.placements if model.need and self._s.ledger.margin is not None else ()
        if not ways or model.state is not State.UNLOADED or model.name in self._s.evicting.values():
            return False
        evicted = self._later
        for other in self._evictable():
            evicted = added(evicted, self._held(other))
        rooms = (self._free, self._later, evicted)
        best = placing.best(ways, rooms, lambda way: self._hopeless(model, way))
        if self._stays(model) and all(short_of(best.minimum, room) for room in rooms):
            return False
        model.placement = best
        return True

    def _stays(self, model: Model) -> bool:
        """Busy models drain for the way chosen, and it can still be had."""
        way = model.placement
        return way is not None and model.name in self._s.draining.values() and not self._hopeless(model, way)

    def _hopeless(self, model: Model, way: Placement) -> bool:
        return self._refusal(model, added({PROCESSES: 1}, way.minimum)) is not None

    # ---- what is set aside

    def _expect(self, amounts: Amounts) -> None:
        for name, amount in amounts.items():
            if name in self._later:
                self._later[name] += amount

    def _set_aside(self, amounts: Amounts) -> None:
        for room in (self._free, self._later):
            for name, amount in amounts.items():
                if name in room:
                    room[name] -= amount

    # ---- who gets room

    def _start(self, model: Model, checked: Amounts) -> None:
        """Spawn or wake; `checked` is the part of its need that there is room for."""
        s, before = self._s, self._s.ledger.available()
        unchecked = {name: n for name, n in need_of(s, model).items() if name not in checked}
        if unchecked:
            words = explain_shortage(s, unchecked, unchecked)
            s.note("overcommit", model.name, f"tried all the same, none of ours is in the way: {words}")
        if model.state is State.SLEEPING:
            lifecycle.wake(s, model, self._now)
        else:
            lifecycle.spawn(s, model, reservation(s, model), self._now)
        after, self._movable = s.ledger.available(), None
        self._set_aside({name: before[name] - after[name] for name in before})

    # ---- who has to leave

    def _evictable(self) -> list[Model]:
        """Sleepers, then idle models, then loads that nobody waits for; each the longest unused first."""
        models = self._s.models
        idle = [model for name in self._s.idle if may_evict(model := models[name])]
        idle.sort(key=lambda model: model.state is not State.SLEEPING)
        return [*idle, *(model for name in self._s.abandoned if not (model := models[name]).pinned)]

    def _evict_for(self, model: Model, short: Amounts) -> bool:
        """Let the first of those leave who together hold what is short. True: somebody is leaving."""
        if model.name in self._s.evicting.values():
            return True
        victims = enough(self._evictable(), short, self._held)
        if not victims:
            return False
        self._evict(victims[0], model)
        return True

    def _evict_one_more(self, model: Model) -> bool:
        """After a load that ran out of memory: somebody leaves, whatever the books say."""
        if not model.evict_one_more:
            return model.out_of_memory > 0 and model.name in self._s.evicting.values()
        model.evict_one_more = False
        victims = self._evictable()
        if victims:
            self._evict(victims[0], model)
        return bool(victims)

    def _evict(self, victim: Model, wanting: Model) -> None:
        s, reason = self._s, f"unloaded to make room for {wanting.name!r}"
        numbers = {"held": dict(self._held(victim)), "available": s.ledger.available()}
        s.note("evict", victim.name, reason, wanting=wanting.name, need=dict(need_of(s, wanting)), **numbers)
        self._expect(self._held(victim))
        lifecycle.stop(s, victim, reason, self._now)
        self._s.evicting[victim.name] = wanting.name

    def _held(self, model: Model) -> Amounts:
        return self._s.ledger.held_by(model.child)

    # ---- who waits, and who need not

    def _short_for_good(self, model: Model, need: Amounts) -> tuple[dict[str, int], list[Model]]:
        """What would be short though all that may leave had left, and who holds some of it.

        Asked of the devices as they are, not of what entries ahead have set aside: those are served and gone one day.
        """
        movable = self._all_movable()
        if model.resident and _may_move(model):
            own = self._held(model)
            movable = {name: amount - own.get(name, 0) for name, amount in movable.items()}
        short = {name: n for name, n in short_of(need, movable).items() if name in self._free}
        others = (other for other in self._s.residents() if other is not model) if short else ()
        return short, [other for other in others if any(self._held(other).get(name) for name in short)]

    def _all_movable(self) -> dict[str, int]:
        """What there would be, had all left that may. Who leaves changes nothing about it, only who starts does."""
        if self._movable is None:
            self._movable = added(self._s.ledger.available(), self._s.ledger.departing())
            for other in self._s.residents():
                if _may_move(other):
                    self._movable = added(self._movable, self._held(other))
        return self._movable

    def _refusal(self, model: Model, need: Amounts) -> Refusal | None:
        """Waiting cannot help: it is too large for the device, or all that is in the way is pinned."""
        if refusal := too_large_refusal(self._s, model, need):
            return refusal
        short, holders = self._short_for_good(model, need)
        pins = [other for other in holders if other.pinned]
        return pins_refusal(self._s, model, pins, short) if pins else None

    def _refuse(self, model: Model, refusal: Refusal) -> None:
        s = self._s
        s.queue.leave(model.name)
        model.ordered = False
        s.note("refuse", model.name, refusal.message)
        s.refuse_waiters(model, refusal)
        self.again = True

    def _leave_out_hopeless(self, model: Model, need: Amounts) -> Amounts:
        """Other programs hold what is short, and none of ours is in the way: then it is tried all the same.

        The instance's own fit has the last word.
        """
        short, holders = self._short_for_good(model, need)
        if not short or holders or self._s.ledger.departing():
            return need
        return {name: amount for name, amount in need.items() if name not in short}

    def _overdue(self, model: Model, short: Amounts) -> bool:
        """It has waited too long: choose who is to be closed for it. False: not yet."""
        s = self._s
        drain_at = s.queue.since(model.name) + s.limits.drain_after_s
        if drain_at > self._now:
            timer = Timer(Deadline.DRAIN)
            earliest = s.timers.get(timer)
            s.timers.set(timer, drain_at if earliest is None else min(earliest, drain_at))
            return False
        idle = {other.name: other for other in self._evictable()}
        draining = [s.models[name] for name in s.draining]
        busy = sorted(
            (other for other in s.residents() if may_drain(other) and self._may_be_closed(other)),
            key=drain_order,
        )
        candidates = [
            other
            for other in chain(
                idle.values(), draining, (b for b in busy if b.drain is None and b.name not in idle)
            )
            if other.name not in self._drains and other is not model
        ]
        for other in enough(candidates, short, self._held) or ():
            if other.name not in idle:
                self._drains[other.name] = model.name
                self._expect(self._held(other))
        return True

    def _may_be_closed(self, other: Model) -> bool:
        return other.name not in self._ahead and self._lifted[other.name] < LIFTS_MAX

    def fit_drains(self) -> None:
        """Lift drains that serve nobody any more, begin the new ones; one may go on for another than it began for."""
        s = self._s
        for name in [name for name in reversed(s.draining) if name not in self._drains]:
            lifecycle.lift_drain(s, s.models[name], self._now)
            self._lifted[name] += 1
            self.again = True
        for name, wanting in self._drains.items():
            if s.draining.get(name) != wanting and may_drain(s.models[name]) and wanting in s.queue:
                waited_s = self._now - s.queue.since(wanting)
                cause = f"to make room for {wanting!r}, which has waited {waited_s:.0f} s"
                lifecycle.drain(s, s.models[name], Drain.ROOM, cause, self._now, wanting=wanting)


def _may_move(model: Model) -> bool:
    """Its room comes free one day: it leaves, or nothing keeps it for ever."""
    return model.state is State.STOPPING or not model.pinned


def trim(s: SchedulerState, now: float) -> None:
    """After a limit was lowered: let idle models go until it is kept."""
    while True:
        over = {name: -amount for name, amount in s.ledger.available().items() if amount < 0}
        for name in s.leaving:
            held = s.ledger.held_by(s.models[name].child)
            over = {device: amount - held.get(device, 0) for device, amount in over.items()}
        over = {device: amount for device, amount in over.items() if amount > 0}
        candidates = [model for name in s.idle if may_evict(model := s.models[name])]
        leaving = next((m for m in candidates if any(s.ledger.held_by(m.child).get(d) for d in over)), None)
        if leaving is None:
            return
        lifecycle.stop(s, leaving, "unloaded: the limits are tighter now", now)


def abandon(s: SchedulerState, model: Model, now: float) -> None:
    """The grace time of a load that nobody waits for is over."""
    if model.name in s.abandoned:
        lifecycle.stop(s, model, "load dropped: nobody waits for it any more", now)
