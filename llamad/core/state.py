"""Everything the scheduler knows, in one place, with the small moves that several of its parts share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from llamad.core.actions import Action, AnswerTicket, Note, RefuseLease
from llamad.core.events import LeaseKey, Limits
from llamad.core.ledger import Ledger
from llamad.core.model import Model, State
from llamad.core.queue import Queue
from llamad.core.timers import Timers
from llamad.core.waiters import Ticket, Waiters, Who


class Deadline(Enum):
    """What a timer is for."""

    WAITERS = "waiters"
    """The first waiter of a model has waited `queue_timeout_s`."""
    STOP = "stop"
    """A process has not left yet: ask harder."""
    DRAIN = "drain"
    """The head of the queue has waited `drain_after_s`."""
    ABANDON = "abandon"
    """Nobody has waited for this load for `abandon_after_s`."""
    SUSPECT = "suspect"
    """A process that a worker took for dead is still there."""
    SHUTDOWN = "shutdown"
    """Running requests have had their time."""
    PROGRESS = "progress"
    """A load has reported no progress for `load_timeout_s`."""
    IDLE = "idle"
    """A model has not been used for as long as it may stay awake, or loaded."""
    HOLD = "hold"
    """A hold ends."""
    REREAD = "reread"
    """Somebody waits for memory that others may have given back."""


class Timer(NamedTuple):
    """Subject of a deadline; `model` is empty for those of the whole scheduler."""

    deadline: Deadline
    model: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody does not get what they waited for, in the parts of `llamad.errors.error_body`."""

    kind: str
    status: int
    message: str
    retry_after_s: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SchedulerState:
    """The scheduler's memory. Its parts (`leases`, `lifecycle`, `room`, `orders`) are functions over it."""

    limits: Limits
    ledger: Ledger
    models: dict[str, Model] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Every id and alias to the id it stands for."""
    children: dict[int, str] = field(default_factory=dict)
    """Live processes: generation to model."""
    queue: Queue = field(default_factory=Queue)
    timers: Timers[Timer] = field(default_factory=Timers)
    idle: dict[str, None] = field(default_factory=dict)
    """Loaded and sleeping models that nobody uses, least recently used first."""
    abandoned: dict[str, None] = field(default_factory=dict)
    """Loading models that nobody waits for."""
    draining: dict[str, str] = field(default_factory=dict)
    """Models that drain to make room, in the order in which they were chosen, and for whom."""
    places: dict[LeaseKey, str] = field(default_factory=dict)
    """Each lease that is waiting, granted or reading, to its model."""
    by_worker: dict[int, dict[LeaseKey, None]] = field(default_factory=dict)
    slotless: set[LeaseKey] = field(default_factory=set)
    """Waiting leases that will take no slot."""
    waiting: int = 0
    """Waiters in all."""
    measuring: dict[int, str] = field(default_factory=dict)
    """Measure children, which are in `children`, too."""
    leaving: dict[str, None] = field(default_factory=dict)
    """Models in state STOPPING: room that is about to be free."""
    evicting: dict[str, str] = field(default_factory=dict)
    """Victim on its way out, to the model that it leaves for."""
    stirred: bool = True
    """Something has happened, beside the queue, that the next walk has to look at."""
    reading: bool = False
    """ReadMemory was asked and not answered yet."""
    asked_unsettled: bool = False
    """Processes did not hold what is on the books when it was asked, so perhaps not either when the devices were looked at."""
    next_child: int = 1
    stopping: bool = False
    finished: bool = False
    actions: list[Action] = field(default_factory=list)

    def emit(self, action: Action) -> None:
        self.actions.append(action)

    def note(self, kind: str, model: str, text: str, **numbers: Any) -> None:
        """Tell the event ring what was decided and why."""
        self.emit(Note(kind, model, text, numbers))

    # ---- leases' places

    def place(self, key: LeaseKey, model: Model) -> None:
        self.places[key] = model.name
        self.by_worker.setdefault(key.worker, {})[key] = None

    def forget(self, key: LeaseKey) -> None:
        self.places.pop(key, None)
        self.slotless.discard(key)
        keys = self.by_worker.get(key.worker)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del self.by_worker[key.worker]

    # ---- waiters

    def add_waiter(self, model: Model, who: Who, now: float, client: str = "") -> None:
        model.waiters.add(who, now, client)
        self.waiting += 1
        self.abandoned.pop(model.name, None)
        self.timers.clear(Timer(Deadline.ABANDON, model.name))
        if isinstance(who, LeaseKey):
            self.place(who, model)
        if len(model.waiters) == 1:
            self.arm_waiters(model)

    def remove_waiter(self, model: Model, who: Who) -> None:
        model.waiters.remove(who)
        self.waiting -= 1
        self.arm_waiters(model)

    def take_waiters(self, model: Model) -> Iterator[Who]:
        """Remove and give all waiters, in order of arrival."""
        waiters = list(model.waiters)
        self.waiting -= len(waiters)
        model.waiters = Waiters()
        self.timers.clear(Timer(Deadline.WAITERS, model.name))
        return iter(waiters)

    def arm_waiters(self, model: Model) -> None:
        """The first waiter is the oldest, and all have the same time limit: one timer a model is enough."""
        timer = Timer(Deadline.WAITERS, model.name)
        first = model.waiters.oldest
        if first is None or not self.limits.queue_timeout_s:
            self.timers.clear(timer)
        else:
            self.timers.set(timer, first.since + self.limits.queue_timeout_s)

    def refuse(self, who: Who, refusal: Refusal) -> None:
        """Answer someone who asked or waited with the reason why not."""
        if isinstance(who, Ticket):
            self.emit(AnswerTicket(who.number, refusal.kind, refusal.status, refusal.message))
            return
        self.forget(who)
        self.emit(
            RefuseLease(
                who,
                refusal.kind,
                refusal.status,
                refusal.message,
                refusal.retry_after_s,
                refusal.details,
            )
        )

    def refuse_waiters(self, model: Model, refusal: Refusal) -> None:
        for who in self.take_waiters(model):
            self.refuse(who, refusal)

    # ---- models

    def enqueue(self, model: Model, now: float) -> None:
        """Queue for room, with the age of the one who has waited longest; behind the one whom it makes room for."""
        first = model.waiters.oldest
        behind = self.draining.get(model.name) or self.evicting.get(model.name, "")
        self.queue.join(model.name, first.since if first else now, model.entry.priority, behind)

    def reason(self, model: Model) -> str:
        """Why it is in its state; of one that waits for room, what it waits for."""
        if model.name not in self.queue or model.state not in (State.UNLOADED, State.SLEEPING):
            return model.reason
        leaving = [repr(victim) for victim, wanting in self.evicting.items() if wanting == model.name]
        if leaving:
            return f"waits until {', '.join(leaving)} has left"
        return f"waits for room, at position {self.queue.position(model.name)} of the queue"

    def forget_model(self, model: Model) -> None:
        """Drop a model that is gone from the configuration and has no process."""
        for deadline in Deadline:
            self.timers.clear(Timer(deadline, model.name))
        del self.models[model.name]

    def resolve(self, name: str) -> str | None:
        """The id that an id or alias stands for. Exact: case counts, and there is no substitute."""
        return self.names.get(name)

    def by_child(self, child: int) -> Model | None:
        """The model of a live process; None for late news of one that is gone."""
        name = self.children.get(child)
        return self.models[name] if name is not None else None

    def residents(self) -> Iterator[Model]:
        """Models that hold room, in the order in which they took it."""
        return (self.models[name] for name in self.ledger.holders().values())

    @property
    def settled(self) -> bool:
        """Every process holds what the books say."""
        return all(model.settled for model in self.residents())

    def mark_idle(self, model: Model, now: float) -> None:
        """Move to the young end of the idle models, and start the clock that may put it to sleep or end it."""
        self.idle.pop(model.name, None)
        self.stirred = True
        if model.idle:
            self.idle[model.name] = None
            self.arm_idle(model, now)

    def sort_idle(self) -> None:
        """After something that was no use: the order is that of the last uses."""
        self.idle = dict.fromkeys(sorted(self.idle, key=lambda name: self.models[name].idle_since))

    def mark_idle_again(self, model: Model, now: float) -> None:
        """Its limits or its pin have changed; its place among the idle has not."""
        self.timers.clear(Timer(Deadline.IDLE, model.name))
        self.arm_idle(model, now)

    def unmark_idle(self, model: Model) -> None:
        if model.name in self.idle:
            del self.idle[model.name]
            self.stirred = True
        self.timers.clear(Timer(Deadline.IDLE, model.name))

    def arm_idle(self, model: Model, now: float) -> None:
        """The clock counts from the end of the last use. A pinned model may sleep, but stays."""
        entry = model.entry
        limits = []
        if entry.sleep_idle_s and model.state is State.LOADED:
            limits.append(entry.sleep_idle_s)
        if entry.unload_idle_s and not model.pinned:
            limits.append(entry.unload_idle_s)
        if limits:
            self.timers.set(Timer(Deadline.IDLE, model.name), max(now, model.idle_since + min(limits)))

    def check_abandoned(self, model: Model, now: float) -> None:
        """Start the grace time of a load that has lost its last waiter."""
        if model.state is State.LOADING and not model.wanted and model.name not in self.abandoned:
            self.abandoned[model.name] = None
            self.timers.set(Timer(Deadline.ABANDON, model.name), now + self.limits.abandon_after_s)
