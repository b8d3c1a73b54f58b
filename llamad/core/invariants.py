"""What must hold after every step, whatever happened. The simulator checks it; `status` may, too."""

from __future__ import annotations

from collections.abc import Iterator

from llamad.core.ledger import PROCESSES, added
from llamad.core.model import Drain, Model, State, StopStage
from llamad.core.state import Deadline, SchedulerState, Timer


def broken(s: SchedulerState) -> list[str]:
    """Sentences about what does not hold; empty when all is well. O(models + leases)."""
    return [*_books(s), *_leases(s), *_sets(s), *_queue(s)]


def _books(s: SchedulerState) -> Iterator[str]:
    processes = {model.child: model.name for model in s.models.values() if model.state is not State.UNLOADED}
    if processes != s.children:
        yield f"processes {s.children} are not those of the models {processes}"
    residents = {model.child: model.name for model in s.models.values() if model.resident}
    if s.ledger.holders() != residents:
        yield f"room is held by {s.ledger.holders()}, residents are {residents}"
    measuring = {model.child for model in s.models.values() if model.state is State.MEASURING}
    if measuring != set(s.measuring):
        yield f"{measuring} measure, the books say {s.measuring}"
    yield from _devices(s)


def _devices(s: SchedulerState) -> Iterator[str]:
    held = added({}, s.ledger.departing())
    for child in s.ledger.holders():
        held = added(held, s.ledger.held_by(child))
    for device in [*s.ledger.memories(), *filter(None, [s.ledger.device(PROCESSES)])]:
        if device.held != held.get(device.name, 0):
            yield f"{device.name} has {device.held} on its books, its holders have {held.get(device.name, 0)}"


def _leases(s: SchedulerState) -> Iterator[str]:
    seen: dict[object, str] = {}
    for model in s.models.values():
        for key in [*model.leases, *model.attached, *model.readers, *model.waiters]:
            if key in seen:
                yield f"{key} is at {seen[key]!r} and at {model.name!r}"
            seen[key] = model.name
        allowed = (State.LOADED, State.SLEEPING, State.STOPPING)
        if (model.leases or model.attached) and model.state not in allowed:
            yield f"{model.name!r} has leases but is {model.state.value}"
        if model.readers and model.state not in (*allowed, State.LOADING):
            yield f"{model.name!r} has readers but is {model.state.value}"
    leases = {key: name for key, name in seen.items() if key in s.places}
    if leases != s.places:
        yield f"places {s.places} differ from the models' own {leases}"
    if sum(map(len, s.by_worker.values())) != len(s.places):
        yield "leases by worker are not all leases"
    if sum(len(model.waiters) for model in s.models.values()) != s.waiting:
        yield f"the count of waiters is {s.waiting}"


def _sets(s: SchedulerState) -> Iterator[str]:
    models = s.models.values()
    for name, kept, true in (
        ("idle", s.idle, {model.name for model in models if model.idle}),
        ("abandoned", s.abandoned, {m.name for m in models if m.state is State.LOADING and not m.wanted}),
        ("draining", s.draining, {model.name for model in models if model.drain is Drain.ROOM}),
        ("leaving", s.leaving, {model.name for model in models if model.state is State.STOPPING}),
    ):
        if set(kept) != true:
            yield f"{name} models are {sorted(true)}, the books say {sorted(kept)}"
    for model in models:
        if model.drain is not None and model.idle:
            yield f"{model.name!r} is drained and idle but was not stopped"
        pressed = model.state is State.STOPPING and model.stop_stage is not StopStage.KILLED
        if pressed and s.timers.get(Timer(Deadline.STOP, model.name)) is None:
            yield f"{model.name!r} is asked to leave and nobody will press it"
        if model.removed and model.state is State.UNLOADED:
            yield f"{model.name!r} is removed and has no process, but is still there"


def _queue(s: SchedulerState) -> Iterator[str]:
    for name in s.queue:
        if not s.models[name].wanted:
            yield f"{name!r} is in the queue and nobody wants it"
    if s.stopping and (s.queue or s.waiting):
        yield "the daemon stops, but somebody still waits"
    for model in s.models.values():
        if model.wanted and not _will_wake(s, model):
            yield f"{model.name!r} is wanted, {model.state.value}, and nothing will ever serve it"
    head = next((s.models[name] for name in s.queue), None)
    if head is not None and head.state is State.UNLOADED and _could_start(s, head):
        yield "there is room, and the head of the queue without a process waits for it"
    if (
        s.queue
        and s.ledger.margin is not None
        and not s.reading
        and s.timers.get(Timer(Deadline.REREAD)) is None
    ):
        yield "somebody waits for memory, and nobody will look at it again"


def _could_start(s: SchedulerState, head: Model) -> bool:
    """By the count of processes alone; where memory is booked the devices have a say, too."""
    retrying = head.out_of_memory > 0 and head.name in s.evicting.values()
    return s.ledger.margin is None and s.ledger.fits({PROCESSES: 1}) and not retrying


def _will_wake(s: SchedulerState, model: Model) -> bool:
    """Some event that must come will answer those who wait for `model`."""
    match model.state:
        case State.LOADING | State.STOPPING | State.MEASURING:
            return True
        case State.SLEEPING:
            return model.name in s.queue
        case State.LOADED:
            return (
                model.drain is not None
                or model.full
                or s.timers.get(Timer(Deadline.SUSPECT, model.name)) is not None
            )
        case State.UNLOADED:
            return model.name in s.queue and (bool(s.children) or s.ledger.margin is not None)
