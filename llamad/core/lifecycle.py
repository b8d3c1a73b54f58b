"""Processes come and go: spawn, ready, sleep, stop, exit. Here and in `measuring` alone a model changes its state."""

from __future__ import annotations

from llamad.core.actions import (
    AnswerTicket,
    AskExit,
    EndLease,
    GrantLease,
    Kill,
    Sleep,
    Spawn,
    Terminate,
    Wake,
)
from llamad.core.events import (
    Amounts,
    ChildExited,
    ChildFailed,
    ChildProgressed,
    ChildReady,
    ChildSlept,
    ChildStalled,
    LeaseKey,
)
from llamad.core.failures import book_failure
from llamad.core.ledger import PROCESSES, added
from llamad.core.model import Drain, Model, State, StopStage
from llamad.core.state import Deadline, Refusal, SchedulerState, Timer

WANTED_AGAIN_S = 1.0
"""How often an idle model that somebody waits for (a sleeper without room to wake, say) is looked at again."""
LAST_WORDS_S_MAX = 10.0
"""A process that said why it is about to exit, and has not exited after this long, is ended."""


def take_child(s: SchedulerState, model: Model) -> int:
    """A new child number for `model`."""
    child = s.next_child
    s.next_child += 1
    s.children[child] = model.name
    model.child = child
    return child


def spawn(s: SchedulerState, model: Model, reserved: Amounts | None, now: float) -> None:
    """UNLOADED -> LOADING. Room is reserved before the process exists."""
    child, available = take_child(s, model), s.ledger.available()
    s.queue.leave(model.name)
    s.ledger.reserve(child, model.name, added({PROCESSES: 1}, reserved or {}))
    model.move("spawned", now)
    model.fingerprint = model.entry.fingerprint
    model.load_unchecked = False
    _begin_load(s, model, now)
    s.emit(Spawn(child, model.name, reserved, model.most if reserved else None, model.placement))
    s.note(
        "load",
        model.name,
        model.reason,
        child=child,
        waiting=len(model.waiters),
        reserved=dict(reserved or {}),
        available=available,
    )


def wake(s: SchedulerState, model: Model, now: float) -> None:
    """SLEEPING -> LOADING. It takes again what it took before."""
    s.queue.leave(model.name)
    s.unmark_idle(model)
    need, available = wake_need(s, model), s.ledger.available()
    s.ledger.replace(model.child, need)
    model.move("wake", now)
    _begin_load(s, model, now)
    s.emit(Wake(model.child))
    s.note(
        "wake",
        model.name,
        model.reason,
        child=model.child,
        waiting=len(model.waiters),
        reserved=dict(need),
        available=available,
    )


def wake_need(s: SchedulerState, model: Model) -> Amounts:
    """All that a sleeper will hold once it is awake."""
    return added({PROCESSES: 1}, model.effective or {})


def _begin_load(s: SchedulerState, model: Model, now: float) -> None:
    model.progress = 0.0
    model.last_word = None
    model.stop_stage = StopStage.NONE
    requests = len(model.waiters) - len(model.waiters.tickets())
    model.reason = f"loading for {requests} waiting" if requests else "loading by order"
    arm_progress(s, model, now)
    s.check_abandoned(model, now)


def arm_progress(s: SchedulerState, model: Model, now: float) -> None:
    """A load begins, has moved, or has another limit now."""
    if model.state is not State.LOADING or model.last_word is not None:
        return
    if s.limits.load_timeout_s:
        s.timers.set(Timer(Deadline.PROGRESS, model.name), now + s.limits.load_timeout_s)
    else:
        s.timers.clear(Timer(Deadline.PROGRESS, model.name))


def progressed(s: SchedulerState, event: ChildProgressed, now: float) -> None:
    model = s.by_child(event.child)
    if model is not None and model.state is State.LOADING:
        model.progress = min(1.0, max(0.0, event.progress))
        arm_progress(s, model, now)


def ready(s: SchedulerState, event: ChildReady, now: float) -> None:
    """LOADING -> LOADED; those who waited are served first, so a fresh model is no victim before it was of use."""
    model = s.by_child(event.child)
    if model is None or model.state is not State.LOADING:
        return
    model.move("ready", now)
    model.progress = 1.0
    model.loaded_at = now
    model.out_of_memory = 0
    model.reason = "loaded"
    s.abandoned.pop(model.name, None)
    s.timers.clear(Timer(Deadline.ABANDON, model.name))
    s.timers.clear(Timer(Deadline.PROGRESS, model.name))
    model.slots = event.slots
    _book_effective(s, model, event.effective)
    s.note("loaded", model.name, "loaded", child=model.child, held=s.ledger.held_by(model.child))
    s.mark_idle(model, now)
    serve_waiters(s, model, now)


def _book_effective(s: SchedulerState, model: Model, effective: Amounts | None) -> None:
    """What was promised is replaced by what was really taken."""
    if effective is not None:
        s.ledger.replace(model.child, added({PROCESSES: 1}, effective))
    model.effective = {name: n for name, n in s.ledger.held_by(model.child).items() if name != PROCESSES}


def serve_waiters(s: SchedulerState, model: Model, now: float) -> None:
    """Give those who waited what they waited for: operators the end state, requests as many slots as there are."""
    model.ordered = False
    s.queue.leave(model.name)
    for ticket in model.waiters.tickets():
        s.remove_waiter(model, ticket)
        s.emit(AnswerTicket(ticket.number))
    feed(s, model, now)


def feed(s: SchedulerState, model: Model, now: float) -> None:
    """Grant to those whose turn it is, until the process is full."""
    suspected = s.timers.get(Timer(Deadline.SUSPECT, model.name)) is not None
    while (
        model.serving and not model.full and not suspected and (key := model.waiters.next_lease()) is not None
    ):
        s.waiting -= 1
        grant(s, model, key, now)
    s.arm_waiters(model)


def grant(s: SchedulerState, model: Model, key: LeaseKey, now: float) -> None:
    s.place(key, model)
    if key in s.slotless:
        s.slotless.discard(key)
        model.attached[key] = True
    else:
        model.leases[key] = None
    model.last_used_at = now
    s.unmark_idle(model)
    s.emit(GrantLease(key, model.child, model.name))


def sleep(s: SchedulerState, model: Model, now: float) -> None:
    """LOADED -> SLEEPING. What it holds stays on the books until it says what it gave back."""
    model.move("sleep", now)
    model.slept = False
    model.reason = f"asleep: not used for {model.entry.sleep_idle_s:.0f} s"
    s.emit(Sleep(model.child))
    s.note("sleep", model.name, model.reason, child=model.child)
    s.arm_idle(model, now)


def slept(s: SchedulerState, event: ChildSlept) -> None:
    """A sleeper holds what it says. One that has been woken meanwhile has its whole need on the books already."""
    model = s.by_child(event.child)
    if model is None or model.state is not State.SLEEPING:
        return
    model.slept = True
    if event.effective is not None:
        s.ledger.replace(event.child, added({PROCESSES: 1}, event.effective))
        s.note("slept", model.name, "has released its memory", child=event.child, held=dict(event.effective))


def idled(s: SchedulerState, model: Model, now: float) -> None:
    """The clock of an idle model has run out: it sleeps, or it goes."""
    if not model.idle:
        return
    if model.wanted:  # for as long as somebody waits for it; those may give up and leave it idle
        s.timers.set(Timer(Deadline.IDLE, model.name), now + WANTED_AGAIN_S)
        return
    entry, since = model.entry, model.idle_since
    if entry.unload_idle_s and now >= since + entry.unload_idle_s and not model.pinned:
        stop(s, model, f"unloaded: not used for {entry.unload_idle_s:.0f} s", now)
    elif entry.sleep_idle_s and now >= since + entry.sleep_idle_s and model.state is State.LOADED:
        sleep(s, model, now)
    else:
        s.arm_idle(model, now)


def stop(s: SchedulerState, model: Model, reason: str, now: float, *, hard: bool = False) -> None:
    """To STOPPING. A loading process is killed at once; so is any with `hard`."""
    loading = model.state is State.LOADING
    model.move("stop", now)
    model.reason = reason
    model.drain = None
    s.leaving[model.name] = None
    s.stirred = True
    if wanting := s.draining.pop(model.name, ""):
        s.evicting[model.name] = wanting
    _clear_process_marks(s, model)
    s.note("stop", model.name, reason, child=model.child, leases=len(model.leases), **_for_whom(wanting))
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


def drain(s: SchedulerState, model: Model, why: Drain, cause: str, now: float, *, wanting: str = "") -> None:
    """Close a loaded model for new leases; it stops when the last one ends, which may be now.

    `cause` completes "it drains …" and, when it has stopped, "it drained …". `wanting`: who needs its room.

    A weaker reason never replaces a stronger one: who was told to unload unloads, whatever else changes its mind.
    """
    if model.drain is None or why >= model.drain:
        model.drain = why
        model.drain_cause = cause
        model.reason = f"drains {cause}"
    if model.drain is Drain.ROOM:
        s.draining[model.name] = wanting
        if model.waiters:
            s.queue.join(model.name, now, model.entry.priority, behind=wanting)
    else:
        s.draining.pop(model.name, None)
    if not model.idle:
        s.note("drain", model.name, f"drains {cause}", leases=len(model.leases), **_for_whom(wanting))
    settle(s, model, now)


def lift_drain(s: SchedulerState, model: Model, now: float) -> None:
    """The reason to drain is gone: the process goes on, and serves those who had to queue meanwhile."""
    s.draining.pop(model.name, None)
    model.drain = None
    model.reason = "loaded"
    s.note("drain-lifted", model.name, "takes new requests again", waiting=len(model.waiters))
    s.mark_idle(model, now)
    serve_waiters(s, model, now)


def settle(s: SchedulerState, model: Model, now: float) -> None:
    """After a lease ended or a drain began: let the next one in, stop what is drained, else note that it is idle."""
    feed(s, model, now)
    if not model.idle:
        return
    if s.stopping:
        stop(s, model, "stopped with the daemon", now)
    elif model.drain is not None:
        stop(s, model, f"drained {model.drain_cause}", now)
    else:
        s.mark_idle(model, now)


def failed(s: SchedulerState, event: ChildFailed, now: float) -> None:
    """Remember a process's own last word; its exit follows, in bounded time."""
    model = s.by_child(event.child)
    if model is not None:
        model.last_word = (event.kind, event.message)
        if model.state is not State.STOPPING:
            s.timers.set(Timer(Deadline.PROGRESS, model.name), now + LAST_WORDS_S_MAX)


def give_up(s: SchedulerState, model: Model, kind: str, message: str, now: float) -> None:
    """End a process that hangs, as a failure of its own. What it has said itself stays its last word."""
    model.last_word = model.last_word or (kind, message)
    model.given_up_in = model.state
    s.note("give-up", model.name, message, child=model.child)
    stop(s, model, message, now, hard=True)


def stalled(s: SchedulerState, event: ChildStalled, now: float) -> None:
    model = s.by_child(event.child)
    if model is not None and model.state is not State.STOPPING:
        give_up(s, model, "instance-stalled", event.message, now)


def no_progress(s: SchedulerState, model: Model, now: float) -> None:
    """A load is stuck, or a process that said it would exit is still there."""
    if model.state not in (State.LOADING, State.LOADED, State.SLEEPING):
        return
    if model.last_word is not None:
        kind, message = model.last_word
    else:
        kind, limit_s = "load-timeout", s.limits.load_timeout_s
        message = f"cannot load {model.name!r}: no progress for {limit_s:.0f} s at {model.progress:.0%}"
    give_up(s, model, kind, message, now)


def exited(s: SchedulerState, event: ChildExited, now: float) -> None:
    """The process is gone: its room comes free, its leases end, and those who waited for either are answered."""
    model = s.by_child(event.child)
    if model is None:
        return
    before = model.given_up_in or model.state
    del s.children[event.child]
    s.ledger.give_back(event.child, now)
    model.move("exited", now)
    if before is State.STOPPING:
        model.failure = None
        words = model.reason
    else:
        words = book_failure(s, model, event, now, served=before is not State.LOADING)
    _forget_process(s, model, event)
    for key in [*model.leases, *model.attached, *model.readers]:
        s.forget(key)
        s.emit(EndLease(key, "instance-died", f"cannot finish the request: {words}"))
    model.leases.clear()
    model.attached.clear()
    model.readers.clear()
    answer_unloads(s, model)
    s.note("exited", model.name, words, child=event.child, exit_code=event.exit_code, signal=event.signal)
    after_exit(s, model, now)


def answer_unloads(s: SchedulerState, model: Model) -> None:
    for ticket in model.unload_tickets:
        s.emit(AnswerTicket(ticket.number))
    model.unload_tickets.clear()


def _for_whom(wanting: str) -> dict[str, str]:
    """What a note says of it."""
    return {"wanting": wanting} if wanting else {}


def _clear_process_marks(s: SchedulerState, model: Model) -> None:
    s.unmark_idle(model)
    s.abandoned.pop(model.name, None)
    for deadline in (Deadline.ABANDON, Deadline.SUSPECT, Deadline.PROGRESS):
        s.timers.clear(Timer(deadline, model.name))


def _forget_process(s: SchedulerState, model: Model, event: ChildExited) -> None:
    _clear_process_marks(s, model)
    s.draining.pop(model.name, None)
    s.leaving.pop(model.name, None)
    s.evicting.pop(model.name, None)
    s.timers.clear(Timer(Deadline.STOP, model.name))
    model.child = 0
    model.drain = None
    model.progress = 0.0
    model.stop_stage = StopStage.NONE
    model.given_up_in = None
    model.exit_code, model.signal = event.exit_code, event.signal


def after_exit(s: SchedulerState, model: Model, now: float) -> None:
    """What is to become of the name without a process."""
    if model.removed:
        s.refuse_waiters(model, not_found(model.name))
        s.queue.leave(model.name)
        s.forget_model(model)
    elif model.wanted and not s.stopping:
        s.enqueue(model, now)


def not_found(name: str) -> Refusal:
    return Refusal("model-not-found", 404, f"cannot find model {name!r}")
