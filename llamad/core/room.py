"""Room: who in the queue gets it, and who has to leave for it.

The queue is walked from its head. Each entry takes the first that there is of

1. free room: its process is spawned;
2. room that is about to be free, because a process is already on its way out: the entry waits;
3. the least recently used idle model (`policy.may_evict`): it is asked to leave;
4. a load that nobody waits for any more: it is killed;
5. nothing. With every resident pinned it is refused at once, and the pins are named. Otherwise it waits; once it has
   waited `drain_after_s`, one busy model for it is closed for new leases, so that it becomes idle. That bounds the
   wait of a cold model by `drain_after_s` and the longest running request, whatever steady clients others have.

The walk ends at the first entry that gets nothing and is not overdue: all entries need the same (one process), so none
behind it could get more. It is never longer than twice the limit, as there are no more processes than that to free or
to close, however long the queue is.

Drains are counted anew each time: one for every overdue entry that nothing else serves; surplus ones are lifted, the
latest first. So a client that gives up also gives back what was closed for it.
"""

from __future__ import annotations

from itertools import islice

from llamad.core import lifecycle
from llamad.core.model import Drain, Model, State
from llamad.core.policy import drain_victim, victim
from llamad.core.state import Deadline, Refusal, SchedulerState, Timer


def make_room(s: SchedulerState, now: float) -> None:
    """Walk the queue and act until nothing more can be done now."""
    s.timers.clear(Timer(Deadline.DRAIN))
    overdue: list[Model] = []
    while s.queue and _walk(s, overdue, now):
        overdue.clear()
    _fit_drains(s, overdue, now)


def _walk(s: SchedulerState, overdue: list[Model], now: float) -> bool:
    """One walk; collects the entries that a drain is due for. True: entries were refused, walk again."""
    coming = s.leaving - s.ledger.excess
    refused = False
    for name in list(islice(s.queue, 2 * s.ledger.models_max + 1 if s.ledger.models_max else None)):
        model = s.models[name]
        if model.state is State.UNLOADED and s.ledger.fits():
            lifecycle.spawn(s, model, now)
        elif coming > 0:
            coming -= 1
        elif model.resident or _evict_for(s, model, now):
            continue  # a process of its own has to leave first, and leaves room for others when it does
        elif _refuse_for_pins(s, model):
            refused = True
        else:
            drain_at = s.queue.since(name) + s.limits.drain_after_s
            if drain_at > now:
                s.timers.set(Timer(Deadline.DRAIN), drain_at)
                break
            overdue.append(model)
    return refused


def _evict_for(s: SchedulerState, wanting: Model, now: float) -> bool:
    """Make one idle or abandoned process leave."""
    leaving = victim(s.models[name] for name in s.idle)
    if leaving is None and s.abandoned:
        leaving = s.models[next(iter(s.abandoned))]
    if leaving is None:
        return False
    lifecycle.stop(s, leaving, f"unloaded to make room for {wanting.name!r}", now)
    return True


def _refuse_for_pins(s: SchedulerState, model: Model) -> bool:
    """With every resident pinned, waiting would not help."""
    holders = s.ledger.holders()
    if not all(s.models[name].entry.pinned for name in holders):
        return False
    pins = ", ".join(repr(name) for name in sorted(holders))
    message = (
        f"cannot load {model.name!r}: {len(holders)} of at most {s.ledger.models_max} models are loaded "
        f"and all are pinned: {pins}"
    )
    s.queue.leave(model.name)
    model.ordered = False
    s.note("refuse", model.name, message, pinned=len(holders))
    s.refuse_waiters(model, Refusal("all-pinned", 503, message, retry_after_s=30.0))
    return True


def _fit_drains(s: SchedulerState, overdue: list[Model], now: float) -> None:
    while len(s.draining) > len(overdue):
        lifecycle.lift_drain(s, s.models[next(reversed(s.draining))], now)
    for waiting in overdue[len(s.draining) :]:
        leaving = drain_victim(s.residents())
        if leaving is None:
            break
        waited_s = now - s.queue.since(waiting.name)
        reason = f"drains to make room for {waiting.name!r}, which has waited {waited_s:.0f} s"
        lifecycle.drain(s, leaving, Drain.ROOM, reason, now)


def trim(s: SchedulerState, now: float) -> None:
    """After the limit was lowered: let idle models go until it is kept."""
    while s.ledger.excess > s.leaving:
        leaving = victim(s.models[name] for name in s.idle)
        if leaving is None:
            break
        lifecycle.stop(s, leaving, f"unloaded: at most {s.ledger.models_max} models may be loaded now", now)


def abandon(s: SchedulerState, model: Model, now: float) -> None:
    """The grace time of a load that nobody waits for is over."""
    if model.name in s.abandoned:
        lifecycle.stop(s, model, "load dropped: nobody waits for it any more", now)
