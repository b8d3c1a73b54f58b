"""Leases: ask, grant, refuse, cancel, release; each ask is answered exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from llamad.core.actions import EndLease, GrantLease, QueueLease
from llamad.core.events import (
    LeaseAnnounced,
    LeaseAsked,
    LeaseCancelled,
    LeaseDetached,
    LeaseFollowed,
    LeaseKey,
    LeaseReleased,
    WorkerLost,
)
from llamad.core.failures import load_failed
from llamad.core.lifecycle import feed, grant, not_found, serve_waiters, settle
from llamad.core.model import Model, State
from llamad.core.state import Deadline, Refusal, SchedulerState, Timer

SUSPECT_AFTER_S = 1.0
"""A process that a worker saw die has this long to be reported dead before it is believed alive."""

GONE = Refusal("instance-died", 410, "cannot follow the request: its process is gone")
STOPPING = Refusal("stopping", 503, "cannot take requests: the daemon is stopping", retry_after_s=5.0)


def ask(s: SchedulerState, event: LeaseAsked, now: float) -> None:
    """The decision tree of a request.

    1. The daemon stops, or nobody knows the name: refuse.
    2. It wants to read only: grant what is loaded, load nothing.
    3. The model serves: grant, unless this very process was just seen dying.
    4. It is on its way: wait with the others.
    5. It is not: refuse if it must not be loaded or has just failed, else queue for room.
    """
    name = s.resolve(event.model)
    if event.key in s.places:
        return
    if s.stopping:
        s.refuse(event.key, STOPPING)
        return
    if name is None:
        s.refuse(event.key, not_found(event.model))
        return
    model = s.models[name]
    if not event.slot:
        s.slotless.add(event.key)
    if not event.load:
        _read(s, model, event.key)
    elif model.serving and event.avoid != model.child:
        _join(s, model, event, now)
    elif model.serving:
        if _wait(s, model, event, now):
            _suspect(s, model, now)
    elif model.state is State.LOADING:
        if _wait(s, model, event, now):
            s.emit(QueueLease(event.key, len(model.waiters)))
    else:
        _want(s, model, event, now)


def _join(s: SchedulerState, model: Model, event: LeaseAsked, now: float) -> None:
    """Be served, or wait for one's turn at a full process. Who takes no slot need not wait for one."""
    if not event.slot or (not model.full and not model.waiters):
        grant(s, model, event.key, now)
    elif _wait(s, model, event, now):
        feed(s, model, now)
        if event.key in model.waiters:
            s.emit(QueueLease(event.key, len(model.waiters)))


def _read(s: SchedulerState, model: Model, key: LeaseKey) -> None:
    if model.state not in (State.LOADED, State.SLEEPING):
        s.refuse(key, _not_loaded(model, "reading it does not load it"))
        return
    model.readers[key] = None
    s.place(key, model)
    s.emit(GrantLease(key, model.child, model.name))


def _want(s: SchedulerState, model: Model, event: LeaseAsked, now: float) -> None:
    autoload = s.limits.autoload if event.autoload is None else event.autoload
    # Where loading on request is off, what was loaded by hand may still sleep and wake; a request's own word is obeyed.
    may_wake = model.state is State.SLEEPING and event.autoload is None
    if not autoload and not model.wanted and not may_wake:
        s.refuse(event.key, _not_loaded(model, "loading on request is off"))
    elif model.failure is not None and model.failure.retry_at > now:
        s.refuse(event.key, load_failed(s, model, now))
    elif _wait(s, model, event, now):
        if model.child and event.avoid == model.child:
            _suspect(s, model, now)  # it drains, and the drain may be lifted
        s.enqueue(model, now)
        s.emit(QueueLease(event.key, s.queue.position(model.name)))


def _suspect(s: SchedulerState, model: Model, now: float) -> None:
    if s.timers.get(Timer(Deadline.SUSPECT, model.name)) is None:
        s.timers.set(Timer(Deadline.SUSPECT, model.name), now + SUSPECT_AFTER_S)


def _not_loaded(model: Model, why: str) -> Refusal:
    return Refusal("model-not-loaded", 409, f"cannot use model {model.name!r}: it is not loaded, and {why}")


def _wait(s: SchedulerState, model: Model, event: LeaseAsked, now: float) -> bool:
    """Become a waiter, within the bounds; where they are reached, in place of one whose client has more than its share."""
    most = s.limits.max_queued
    if len(model.waiters) >= most:
        place = _make_place(s, [model], event.client, now)
        refusal = _queue_full(
            429, f"{len(model.waiters)} requests wait for model {model.name!r}, the most is {most}"
        )
    elif s.waiting >= most:
        crowded = [other for other in s.models.values() if other.waiters]
        place = _make_place(s, crowded, event.client, now)
        refusal = _queue_full(503, f"{s.waiting} requests wait in all, the most is {most}")
    else:
        place = True
    if place:
        s.add_waiter(model, event.key, now, event.client)
    else:
        s.refuse(event.key, refusal)
    return place


def _make_place(s: SchedulerState, models: Sequence[Model], client: str, now: float) -> bool:
    """Turn away the youngest request of the client that has most of them waiting, if `client` has fewer by far.

    So a full queue is shared: whoever fills it is refused, and nobody else.
    """
    counts: Counter[str] = Counter()
    for model in models:
        counts.update(model.waiters.counts())
    greedy = max(counts, key=lambda name: counts[name], default=client)
    over = s.waiting > s.limits.max_queued  # the limit was lowered: one place is not enough
    if over or counts[greedy] <= counts[client] + 1:
        return False
    model = max(models, key=lambda one: one.waiters.counts().get(greedy, 0))
    youngest = model.waiters.youngest(greedy)
    s.remove_waiter(model, youngest)
    numbers = f"{counts[greedy]} of this client wait, and the place is another's"
    s.refuse(youngest, _queue_full(429, numbers))
    waiter_left(s, model, now)
    return True


def _queue_full(status: int, numbers: str) -> Refusal:
    return Refusal("queue-full", status, f"cannot queue the request: {numbers}", retry_after_s=5.0)


def cancel(s: SchedulerState, event: LeaseCancelled, now: float) -> None:
    """The client left. A cancel that crossed its grant is a release."""
    _drop(s, event.key, now)


def release(s: SchedulerState, event: LeaseReleased, now: float) -> None:
    _drop(s, event.key, now)


def detach(s: SchedulerState, event: LeaseDetached, now: float) -> None:
    """Only a granted lease can go on by itself; any other ends here."""
    model = s.models.get(s.places.get(event.key, ""))
    if model is None or event.key not in model.leases:
        _drop(s, event.key, now)
        return
    s.forget(event.key)
    del model.leases[event.key]
    s.place(event.to, model)
    model.leases[event.to] = None


def follow(s: SchedulerState, event: LeaseFollowed) -> None:
    """Keep the process until all is read, but a sleeper asleep, and count it as no use."""
    model = s.by_child(event.child)
    if model is None or event.key in s.places:
        s.refuse(event.key, GONE)
        return
    s.place(event.key, model)
    if model.state in (State.LOADED, State.STOPPING):
        model.attached[event.key] = False
        s.unmark_idle(model)
    else:
        model.readers[event.key] = None
    s.emit(GrantLease(event.key, model.child, model.name))


def worker_lost(s: SchedulerState, event: WorkerLost, now: float) -> None:
    keys = list(s.by_worker.get(event.worker, ()))
    # Waiters first: what the others leave is not for those of the same worker.
    keys.sort(key=lambda key: key not in s.models[s.places[key]].waiters)
    for key in keys:
        _drop(s, key, now)
    if keys:
        s.note(
            "worker-lost", "", f"worker {event.worker} is gone, {len(keys)} leases ended", leases=len(keys)
        )


def announce(s: SchedulerState, event: LeaseAnnounced, now: float) -> None:
    """A worker that reconnected holds a lease from before: believe it if the process is still there."""
    model = s.by_child(event.child)
    if model is None or event.key in s.places or model.state not in (State.LOADED, State.STOPPING):
        s.emit(EndLease(event.key, "instance-died", "cannot finish the request: its process is gone"))
        return
    s.place(event.key, model)
    model.leases[event.key] = None
    model.last_used_at = now
    s.unmark_idle(model)


def _drop(s: SchedulerState, key: LeaseKey, now: float) -> None:
    """Forget a lease in whatever state it is. Unknown keys were ended before, by this end or the other."""
    name = s.places.get(key)
    if name is None:
        return
    model = s.models[name]
    s.forget(key)
    if key in model.leases:
        del model.leases[key]
        model.last_used_at = now
        settle(s, model, now)
    elif key in model.attached:
        used = model.attached.pop(key)
        model.last_used_at = now if used else model.last_used_at
        settle(s, model, now)
        if not used:
            s.sort_idle()
    elif key in model.readers:
        del model.readers[key]
    else:
        s.remove_waiter(model, key)
        waiter_left(s, model, now)


def waiter_left(s: SchedulerState, model: Model, now: float) -> None:
    """After somebody has stopped waiting: perhaps nobody wants it any more."""
    if not model.wanted:
        s.stirred = True
        s.queue.leave(model.name)
        s.timers.clear(Timer(Deadline.SUSPECT, model.name))
    s.check_abandoned(model, now)


def expire_waiters(s: SchedulerState, model: Model, now: float) -> None:
    """Refuse those who have waited for the whole of `queue_timeout_s`."""
    limit_s = s.limits.queue_timeout_s
    late = model.waiters.overdue(limit_s, now)
    refusal = Refusal(
        "queue-timeout",
        503,
        f"cannot serve model {model.name!r}: waited {limit_s:.0f} s for it ({s.reason(model)})",
        retry_after_s=5.0,
    )
    for waiter in late:
        s.remove_waiter(model, waiter.who)
        s.refuse(waiter.who, refusal)
    waiter_left(s, model, now)


def trust(s: SchedulerState, model: Model, now: float) -> None:
    """A process taken for dead is still there: those who avoided it get it after all."""
    if model.serving and model.waiters:
        serve_waiters(s, model, now)
