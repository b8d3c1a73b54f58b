"""Processes come and go: spawn, ready, stop, exit. The only place where a model changes its state."""

from __future__ import annotations

from llamad.core.actions import AnswerTicket, AskExit, EndLease, GrantLease, Kill, Spawn, Terminate
from llamad.core.events import (
    ChildExited,
    ChildFailed,
    ChildNotSpawned,
    ChildProgressed,
    ChildReady,
    LeaseKey,
)
from llamad.core.model import Drain, Failure, Model, State, StopStage, Ticket, exit_words
from llamad.core.policy import STABLE_AFTER_S, pause_s
from llamad.core.state import Deadline, Refusal, SchedulerState, Timer

TAIL_CHARS_MAX = 300


def spawn(s: SchedulerState, model: Model, now: float) -> None:
    """UNLOADED -> LOADING. Room is reserved before the process exists."""
    child = s.next_child
    s.next_child += 1
    s.queue.leave(model.name)
    s.ledger.reserve(child, model.name)
    s.children[child] = model.name
    model.move("spawned", now)
    model.child = child
    model.fingerprint = model.entry.fingerprint
    model.progress = 0.0
    model.last_word = None
    model.stop_stage = StopStage.NONE
    model.reason = f"loading for {len(model.waiters)} waiting" if model.waiters else "loading by order"
    s.emit(Spawn(child, model.name))
    s.note(
        "load",
        model.name,
        model.reason,
        child=child,
        waiting=len(model.waiters),
        residents=s.ledger.residents,
    )
    s.check_abandoned(model, now)


def progressed(s: SchedulerState, event: ChildProgressed) -> None:
    model = s.by_child(event.child)
    if model is not None and model.state is State.LOADING:
        model.progress = min(1.0, max(0.0, event.progress))


def ready(s: SchedulerState, event: ChildReady, now: float) -> None:
    """LOADING -> LOADED; those who waited are served first, so a fresh model is no victim before it was of use."""
    model = s.by_child(event.child)
    if model is None or model.state is not State.LOADING:
        return
    model.move("ready", now)
    model.progress = 1.0
    model.loaded_at = now
    model.reason = "loaded"
    s.abandoned.pop(model.name, None)
    s.timers.clear(Timer(Deadline.ABANDON, model.name))
    s.note("loaded", model.name, "loaded", child=model.child, served=len(model.waiters))
    s.mark_idle(model)
    serve_waiters(s, model, now)


def serve_waiters(s: SchedulerState, model: Model, now: float) -> None:
    """Give all who waited what they waited for."""
    model.ordered = False
    s.queue.leave(model.name)
    for who in s.take_waiters(model):
        if isinstance(who, Ticket):
            s.emit(AnswerTicket(who.number))
        else:
            grant(s, model, who, now)


def grant(s: SchedulerState, model: Model, key: LeaseKey, now: float) -> None:
    s.place(key, model)
    model.leases[key] = None
    model.last_used_at = now
    s.idle.pop(model.name, None)
    s.emit(GrantLease(key, model.child, model.name))


def stop(s: SchedulerState, model: Model, reason: str, now: float, *, hard: bool = False) -> None:
    """LOADED or LOADING -> STOPPING. A loading process is killed at once; so is a loaded one with `hard`."""
    loading = model.state is State.LOADING
    model.move("stop", now)
    model.reason = reason
    model.drain = None
    s.leaving += 1
    s.idle.pop(model.name, None)
    s.abandoned.pop(model.name, None)
    s.draining.pop(model.name, None)
    s.timers.clear(Timer(Deadline.ABANDON, model.name))
    s.timers.clear(Timer(Deadline.SUSPECT, model.name))
    s.note("stop", model.name, reason, child=model.child, leases=len(model.leases))
    if loading or hard:
        model.stop_stage = StopStage.KILLED
        s.emit(Kill(model.child))
    else:
        model.stop_stage = StopStage.ASKED
        s.emit(AskExit(model.child))
        s.timers.set(Timer(Deadline.STOP, model.name), now + model.entry.stop_timeout_s / 2)


def press(s: SchedulerState, model: Model, now: float) -> None:
    """The process did not leave in time: exit -> TERM at half of its stop-timeout -> KILL at the end of it."""
    if model.state is not State.STOPPING:
        return
    if model.stop_stage is StopStage.ASKED:
        model.stop_stage = StopStage.TERMINATED
        s.emit(Terminate(model.child))
        s.timers.set(Timer(Deadline.STOP, model.name), now + model.entry.stop_timeout_s / 2)
        s.note("stop", model.name, "did not exit when asked: terminating", child=model.child)
    elif model.stop_stage is StopStage.TERMINATED:
        model.stop_stage = StopStage.KILLED
        s.emit(Kill(model.child))
        s.note("stop", model.name, "did not terminate: killing", child=model.child)


def drain(s: SchedulerState, model: Model, why: Drain, reason: str, now: float) -> None:
    """Close a loaded model for new leases; it stops when the last one ends, which may be now.

    A weaker reason never replaces a stronger one: who was told to unload unloads, whatever else changes its mind.
    """
    if model.drain is None or why >= model.drain:
        model.drain = why
        model.reason = reason
    if model.drain is Drain.ROOM:
        s.draining[model.name] = None
    else:
        s.draining.pop(model.name, None)
    s.note("drain", model.name, reason, leases=len(model.leases))
    settle(s, model, now)


def lift_drain(s: SchedulerState, model: Model, now: float) -> None:
    """The reason to drain is gone: the process goes on, and serves those who had to queue meanwhile."""
    s.draining.pop(model.name, None)
    model.drain = None
    model.reason = "loaded"
    s.note("drain-lifted", model.name, "takes new requests again", waiting=len(model.waiters))
    s.mark_idle(model)
    serve_waiters(s, model, now)


def settle(s: SchedulerState, model: Model, now: float) -> None:
    """After a lease ended or a drain began: stop what is drained, else note that it is idle."""
    if not model.idle:
        return
    if s.stopping:
        stop(s, model, "stopped with the daemon", now)
    elif model.drain is not None:
        stop(s, model, model.reason, now)
    else:
        s.mark_idle(model)


def failed(s: SchedulerState, event: ChildFailed) -> None:
    """Remember a process's own last word; its exit follows."""
    model = s.by_child(event.child)
    if model is not None:
        model.last_word = (event.kind, event.message)


def not_spawned(s: SchedulerState, event: ChildNotSpawned, now: float) -> None:
    model = s.by_child(event.child)
    if model is None:
        return
    model.last_word = ("load-failed", f"cannot load {model.name!r}: {event.message}")
    exited(s, ChildExited(event.child), now)


def exited(s: SchedulerState, event: ChildExited, now: float) -> None:
    """The process is gone: its room is free, its leases end, and those who waited for either are answered."""
    model = s.by_child(event.child)
    if model is None:
        return
    before = model.state
    del s.children[event.child]
    s.ledger.give_back(event.child)
    _forget_process(s, model)
    if before is State.STOPPING:
        s.leaving -= 1
        model.failure = None
        words = model.reason
    else:
        words = _fail(s, model, event, now, served=before is State.LOADED)
    model.move("exited", now)
    model.exit_code, model.signal = event.exit_code, event.signal
    for key in [*model.leases, *model.readers]:
        s.forget(key)
        s.emit(EndLease(key, "instance-died", f"cannot finish the request: {words}"))
    model.leases.clear()
    model.readers.clear()
    for ticket in model.unload_tickets:
        s.emit(AnswerTicket(ticket.number))
    model.unload_tickets.clear()
    s.note("exited", model.name, words, child=event.child, exit_code=event.exit_code, signal=event.signal)
    _after_exit(s, model, now)


def _forget_process(s: SchedulerState, model: Model) -> None:
    s.idle.pop(model.name, None)
    s.abandoned.pop(model.name, None)
    s.draining.pop(model.name, None)
    for deadline in (Deadline.STOP, Deadline.ABANDON, Deadline.SUSPECT):
        s.timers.clear(Timer(deadline, model.name))
    model.child = 0
    model.drain = None
    model.progress = 0.0
    model.stop_stage = StopStage.NONE


def _fail(s: SchedulerState, model: Model, event: ChildExited, now: float, *, served: bool) -> str:
    """Book a failure, refuse those who waited for the load, and return the words for it."""
    lived_s = now - (model.loaded_at or now) if served else 0.0
    count = 1 if model.failure is None or lived_s >= STABLE_AFTER_S else model.failure.count + 1
    pause = pause_s(count, served=served)
    process = f"the process of {model.name!r} {exit_words(event.exit_code, event.signal)}"
    kind, message = model.last_word or (
        ("instance-died", process) if served else ("load-failed", f"cannot load {model.name!r}: {process}")
    )
    if model.last_word is None and (tail := event.tail.strip()):
        message += f"; its last words: {tail[-TAIL_CHARS_MAX:]}"
    model.failure = Failure(kind, message, count, now + pause)
    model.reason = message
    model.ordered = False
    if not served or pause > 0:
        s.refuse_waiters(model, load_failed(model, now))
        s.queue.leave(model.name)
    return process


def load_failed(model: Model, now: float) -> Refusal:
    """The answer to those who want a model that could not be loaded."""
    failure = model.failure
    assert failure is not None
    return Refusal(
        failure.kind if failure.kind != "instance-died" else "load-failed",
        503,
        failure.message
        if failure.message.startswith("cannot")
        else f"cannot load {model.name!r}: {failure.message}",
        retry_after_s=max(0.0, failure.retry_at - now),
        details={"failures": failure.count},
    )


def _after_exit(s: SchedulerState, model: Model, now: float) -> None:
    """What is to become of the name without a process."""
    if model.removed:
        s.refuse_waiters(model, not_found(model.name))
        s.queue.leave(model.name)
        del s.models[model.name]
    elif model.wanted and not s.stopping:
        s.queue.join(model.name, now)


def not_found(name: str) -> Refusal:
    return Refusal("model-not-found", 404, f"cannot find model {name!r}")
