"""Orders: what an operator wants loaded, unloaded, configured or stopped. Each ticket is answered exactly once."""

from __future__ import annotations

from dataclasses import replace

from llamad.core import measuring
from llamad.core.actions import AnswerTicket, Finish, Terminate
from llamad.core.events import (
    Limits,
    LoadAsked,
    ModelEntry,
    ModelsConfigured,
    PinAsked,
    StopAsked,
    TicketDropped,
    UnloadAsked,
)
from llamad.core.leases import STOPPING, waiter_left
from llamad.core.lifecycle import arm_progress, drain, feed, lift_drain, not_found, stop
from llamad.core.model import Drain, Model, State, StopStage
from llamad.core.room import trim
from llamad.core.state import Deadline, Refusal, SchedulerState, Timer
from llamad.core.waiters import Ticket

CHANGED = "as its configuration has changed"


def load(s: SchedulerState, event: LoadAsked, now: float) -> None:
    """Queue for room like a request, but clear a back-off first: an operator who asks has mended something."""
    ticket = Ticket(event.ticket)
    name = s.resolve(event.model)
    if s.stopping:
        s.refuse(ticket, STOPPING)
        return
    if name is None:
        s.refuse(ticket, not_found(event.model))
        return
    model = s.models[name]
    model.failure = None
    if model.drain is Drain.UNLOAD:
        _supersede(s, model, now)
    if model.serving:
        s.emit(AnswerTicket(event.ticket))
        return
    model.ordered = True
    s.add_waiter(model, ticket, now)
    if model.state is not State.LOADING:
        s.enqueue(model, now)


def _supersede(s: SchedulerState, model: Model, now: float) -> None:
    """A load order overtakes an unload order that still waits for running requests. What has changed goes all the same."""
    refusal = Refusal(
        "superseded", 409, f"cannot unload {model.name!r}: it was ordered to load again meanwhile"
    )
    for ticket in model.unload_tickets:
        s.refuse(ticket, refusal)
    model.unload_tickets.clear()
    if model.fingerprint == model.entry.fingerprint:
        lift_drain(s, model, now)
    else:
        model.drain = None
        drain(s, model, Drain.CHANGED, CHANGED, now)


def unload(s: SchedulerState, event: UnloadAsked, now: float) -> None:
    """End the process: at once while loading, after its running requests when loaded, now with `force`."""
    ticket = Ticket(event.ticket)
    name = s.resolve(event.model) or event.model
    if name not in s.models:  # one that left the configuration is there by its id until its process is gone
        s.refuse(ticket, not_found(event.model))
        return
    model = s.models[name]
    _end_orders(s, model)
    if model.state is State.UNLOADED:
        s.emit(AnswerTicket(event.ticket))
        return
    model.unload_tickets.append(ticket)
    if model.state in (State.LOADING, State.MEASURING):
        message = f"cannot load {name!r}: unloaded by an operator while it was loading"
        s.refuse_waiters(model, Refusal("unloaded", 503, message, retry_after_s=1.0))
        s.queue.leave(name)
    if model.state is State.MEASURING:
        measuring.call_off(s, model)
    elif model.state is State.LOADING:
        stop(s, model, "unloaded by an operator while loading", now)
    elif model.idle or (model.state is State.LOADED and event.force):
        stop(s, model, "unloaded by an operator", now, hard=event.force)
    elif model.state is State.LOADED:
        drain(s, model, Drain.UNLOAD, "by order of an operator", now)


def _end_orders(s: SchedulerState, model: Model) -> None:
    """An unload order overtakes orders to load; requests go on waiting where there is no process to unload."""
    model.ordered = False
    if model.state is not State.LOADING:
        message = f"cannot load {model.name!r}: it was ordered to unload meanwhile"
        for ticket in model.waiters.tickets():
            s.remove_waiter(model, ticket)
            s.refuse(ticket, Refusal("superseded", 409, message))
    if not model.wanted:
        s.queue.leave(model.name)


def pin(s: SchedulerState, event: PinAsked, now: float) -> None:
    """Keep a model from being evicted, for good, for a while (a hold), or no more."""
    ticket = Ticket(event.ticket)
    name = s.resolve(event.model)
    if name is None:
        s.refuse(ticket, not_found(event.model))
        return
    model, timer = s.models[name], Timer(Deadline.HOLD, name)
    s.timers.clear(timer)
    model.held_until = None
    if event.pinned and event.for_s is not None:
        model.held_until = now + event.for_s
        s.timers.set(timer, model.held_until)
        words = f"held for {event.for_s:.0f} s"
    else:
        model.entry = replace(model.entry, pinned=event.pinned)
        words = "pinned" if event.pinned else "no longer pinned"
    s.note("pin", name, f"{words} by an operator")
    if model.idle:
        s.mark_idle_again(model, now)
    s.emit(AnswerTicket(event.ticket))


def end_hold(s: SchedulerState, model: Model, now: float) -> None:
    model.held_until = None
    s.note("pin", model.name, "its hold has ended")
    if model.idle:
        s.mark_idle_again(model, now)


def drop_ticket(s: SchedulerState, event: TicketDropped, now: float) -> None:
    """Nobody listens any more; what was ordered goes on."""
    ticket = Ticket(event.ticket)
    for model in s.models.values():
        if ticket in model.waiters:
            s.remove_waiter(model, ticket)
            waiter_left(s, model, now)
        elif ticket in model.unload_tickets:
            model.unload_tickets.remove(ticket)


def configure(s: SchedulerState, event: ModelsConfigured, now: float) -> None:
    """Take a new registry. What is unchanged keeps its process, its cache and its streams."""
    if s.stopping:
        return
    other_timeout = event.limits.load_timeout_s != s.limits.load_timeout_s
    s.limits = event.limits
    s.ledger.limit_processes(event.limits.models_max)
    s.ledger.keep_free(event.limits.margin_bytes)
    entries = {entry.name: entry for entry in event.models}
    s.names = _names(event.models)
    for name in [name for name in s.models if name not in entries]:
        _remove(s, s.models[name], now)
    for entry in event.models:
        _take(s, entry, now)
    for model in s.models.values():
        s.arm_waiters(model)
        if other_timeout:
            arm_progress(s, model, now)
    if event.starting:
        _load_at_start(s, event.models, event.limits, now)
    trim(s, now)


def _names(entries: tuple[ModelEntry, ...]) -> dict[str, str]:
    """Ids win over aliases; of equal aliases the first wins (the configuration has refused them before)."""
    names: dict[str, str] = {}
    for entry in entries:
        for alias in entry.aliases:
            names.setdefault(alias, entry.name)
    names.update((entry.name, entry.name) for entry in entries)
    return names


def _take(s: SchedulerState, entry: ModelEntry, now: float) -> None:
    model = s.models.get(entry.name)
    if model is None:
        s.models[entry.name] = Model(entry, since=now)
        return
    if model.entry.fingerprint != entry.fingerprint:
        model.failure = None
        model.placement = None
        model.need, model.measurings, model.load_unchecked = None, 0, False
        measuring.call_off(s, model)
    model.entry = entry
    if model.idle:
        s.mark_idle_again(model, now)
    model.removed = False
    current = not model.resident or model.fingerprint == entry.fingerprint
    if current and model.drain in (Drain.REMOVED, Drain.CHANGED):
        lift_drain(s, model, now)
    elif not current and model.state is State.LOADING:
        stop(s, model, "restarting: its configuration has changed", now)
    elif (
        not current
        and model.state in (State.LOADED, State.SLEEPING)
        and (model.drain is None or model.drain < Drain.CHANGED)
    ):
        drain(s, model, Drain.CHANGED, CHANGED, now)
    feed(s, model, now)  # it may have more requests at once now


def _remove(s: SchedulerState, model: Model, now: float) -> None:
    model.removed = True
    model.ordered = False
    s.refuse_waiters(model, not_found(model.name))
    s.queue.leave(model.name)
    if model.state is State.UNLOADED:
        s.forget_model(model)
    elif model.state is State.MEASURING:
        measuring.call_off(s, model)
    elif model.state is State.LOADING:
        stop(s, model, "removed from the configuration", now)
    elif model.state is not State.STOPPING:
        drain(s, model, Drain.REMOVED, "as it was removed from the configuration", now)


def _load_at_start(s: SchedulerState, entries: tuple[ModelEntry, ...], limits: Limits, now: float) -> None:
    """`load-on-startup`, as far as there is room: loads at start never evict each other."""
    wanted = [entry.name for entry in entries if entry.load_on_startup]
    room = len(wanted) if not limits.models_max else limits.models_max
    for name in wanted[:room]:
        s.models[name].ordered = True
        s.enqueue(s.models[name], now)
    for name in wanted[room:]:
        s.note("skip", name, f"not loaded at start: at most {limits.models_max} models may be loaded")


def stop_all(s: SchedulerState, event: StopAsked, now: float) -> None:
    """Refuse who waits, let running requests end until the deadline, then end everything. May be asked again, sooner."""
    s.stopping = True
    s.timers.clear(Timer(Deadline.DRAIN))
    for model in s.models.values():
        model.ordered = False
        s.refuse_waiters(model, STOPPING)
        s.queue.leave(model.name)
        if model.state is State.LOADING or model.idle:
            stop(s, model, "stopped with the daemon", now)
        measuring.call_off(s, model)
    s.timers.set(Timer(Deadline.SHUTDOWN), max(now, event.deadline))


def shut_down(s: SchedulerState, now: float) -> None:
    """Time is up for what still runs: terminate, and kill half a stop-timeout later."""
    for model in s.models.values():
        if model.state is State.LOADED:
            stop(s, model, "stopped with the daemon, its requests took too long", now)
        if model.state is State.STOPPING and model.stop_stage is StopStage.ASKED:
            model.stop_stage = StopStage.TERMINATED
            s.note("stop", model.name, "the time to stop is up: terminating", child=model.child)
            s.emit(Terminate(model.child))


def finish(s: SchedulerState) -> None:
    """Say so when the last process is gone."""
    if s.stopping and not s.children and not s.finished:
        s.finished = True
        s.emit(Finish())
