"""The scheduler: one event in, the actions that follow from it out.

    actions = scheduler.step(event, now)

Each step does three things: it books the event (`leases`, `lifecycle`, `orders`), it fires the timers that are due, and
it walks the queue (`room`). The walk comes last and looks at the whole, so no handler has to think of whom its change
might help: a freed slot, a vanished waiter and a lowered limit all end in the same place. Only for a request that comes
or goes it is left out, if by that nobody joined or left the queue, became idle or busy, or is no longer waited for.

The shell calls `step(ClockTicked(), now)` when `next_deadline()` has come. Any other event also fires due timers, so a
late tick changes nothing but the time at which things happen.
"""

from __future__ import annotations

from llamad.core import events as e
from llamad.core import leases, lifecycle, measuring, orders, room
from llamad.core.actions import Action
from llamad.core.events import Amounts, Event, Limits
from llamad.core.ledger import PROCESSES, Ledger
from llamad.core.model import PUBLIC_WORDS, Model, State
from llamad.core.state import Deadline, SchedulerState, Timer
from llamad.core.view import DeviceView, ModelView, QueueView, SchedulerView

_CALM = (e.LeaseAsked, e.LeaseReleased, e.LeaseCancelled)
"""Events of every request. Most of them change nothing about room, and say so by leaving `stirred` alone."""


class Scheduler:
    """Which model runs, who waits, who leaves. `now` is monotonic seconds and never goes back."""

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self.state = SchedulerState(limits, Ledger(limits.models_max))

    def step(self, event: Event, now: float) -> list[Action]:
        """Book `event` and return what the shell is to do, in order."""
        s = self.state
        self._book(event, now)
        due = s.timers.pop_due(now)
        for timer in due:
            self._fire(timer, now)
        if not s.stopping and (due or s.stirred or s.queue.stirred or not isinstance(event, _CALM)):
            room.make_room(s, now)
        orders.finish(s)
        actions, s.actions = s.actions, []
        return actions

    def next_deadline(self) -> float | None:
        """When the shell is to send the next ClockTicked, if nothing happens before."""
        return self.state.timers.next()

    def resolve(self, name: str) -> str | None:
        """The id that an id or alias stands for."""
        return self.state.resolve(name)

    def _book(self, event: Event, now: float) -> None:
        s = self.state
        match event:
            case e.LeaseAsked():
                leases.ask(s, event, now)
            case e.LeaseReleased():
                leases.release(s, event, now)
            case e.LeaseCancelled():
                leases.cancel(s, event, now)
            case e.LeaseDetached():
                leases.detach(s, event, now)
            case e.LeaseFollowed():
                leases.follow(s, event)
            case e.LeaseAnnounced():
                leases.announce(s, event, now)
            case e.WorkerLost():
                leases.worker_lost(s, event, now)
            case e.ChildProgressed():
                lifecycle.progressed(s, event, now)
            case e.ChildMeasured():
                measuring.measured(s, event)
            case e.NeedDoubted():
                measuring.doubt(s, event)
            case e.ChildSlept():
                lifecycle.slept(s, event)
            case e.ChildStalled():
                self._stalled(event, now)
            case e.MemoryRead():
                self._read_memory(event, now)
            case e.ChildReady():
                lifecycle.ready(s, event, now)
            case e.ChildFailed():
                lifecycle.failed(s, event, now)
            case e.ChildExited():
                self._exited(event, now)
            case e.ChildNotSpawned():
                self._not_spawned(event, now)
            case e.PinAsked():
                orders.pin(s, event, now)
            case e.LoadAsked():
                orders.load(s, event, now)
            case e.UnloadAsked():
                orders.unload(s, event, now)
            case e.TicketDropped():
                orders.drop_ticket(s, event, now)
            case e.ModelsConfigured():
                orders.configure(s, event, now)
            case e.StopAsked():
                orders.stop_all(s, event, now)
            case e.ClockTicked():
                pass

    def _fire(self, timer: Timer, now: float) -> None:
        s = self.state
        if timer.deadline is Deadline.SHUTDOWN:
            orders.shut_down(s, now)
        if (model := s.models.get(timer.model)) is None:
            return  # a deadline of the whole scheduler: the walk that follows looks at the time itself
        match timer.deadline:
            case Deadline.WAITERS:
                leases.expire_waiters(s, model, now)
            case Deadline.STOP:
                lifecycle.press(s, model, now)
            case Deadline.ABANDON:
                room.abandon(s, model, now)
            case Deadline.SUSPECT:
                leases.trust(s, model, now)
            case Deadline.PROGRESS:
                self._stuck(model, now)
            case Deadline.IDLE:
                lifecycle.idled(s, model, now)
            case Deadline.HOLD:
                orders.end_hold(s, model, now)

    def _exited(self, event: e.ChildExited, now: float) -> None:
        model = self.state.by_child(event.child)
        if model is not None and model.state is State.MEASURING:
            measuring.exited(self.state, model, event, now)
        else:
            lifecycle.exited(self.state, event, now)

    def _stalled(self, event: e.ChildStalled, now: float) -> None:
        model = self.state.by_child(event.child)
        if model is not None and model.state is State.MEASURING:
            measuring.give_up(self.state, model, event.message)
        else:
            lifecycle.stalled(self.state, event, now)

    def _stuck(self, model: Model, now: float) -> None:
        if model.state is State.MEASURING:
            measuring.too_long(self.state, model)
        else:
            lifecycle.no_progress(self.state, model, now)

    def _not_spawned(self, event: e.ChildNotSpawned, now: float) -> None:
        if (model := self.state.by_child(event.child)) is not None:
            model.last_word = ("load-failed", f"cannot load {model.name!r}: {event.message}")
            self._exited(e.ChildExited(event.child), now)

    def _read_memory(self, event: e.MemoryRead, now: float) -> None:
        s = self.state
        asked, s.reading = s.reading, False
        settled = s.settled and not (asked and s.asked_unsettled)
        s.ledger.read(event.readings, settled=settled, asked=asked, now=now)

    # ---- reading

    def view(self) -> SchedulerView:
        """The whole at this moment. For status pages; decisions are made inside."""
        s = self.state
        draining = tuple(s.draining)
        return SchedulerView(
            models=tuple(_model_view(s, model) for model in s.models.values()),
            queue=tuple(
                QueueView(name, len(s.models[name].waiters), s.queue.since(name), draining if i == 0 else ())
                for i, name in enumerate(s.queue)
            ),
            residents=len(s.ledger.holders()),
            models_max=s.limits.models_max,
            stopping=s.stopping,
            devices=tuple(
                DeviceView(d.name, d.total, d.external, d.held, d.margin, d.available)
                for d in s.ledger.memories()
            ),
            read_at=s.ledger.read_at,
        )

    def model_view(self, name: str) -> ModelView | None:
        """One model by id or alias."""
        resolved = self.state.resolve(name)
        return _model_view(self.state, self.state.models[resolved]) if resolved is not None else None


def _model_view(s: SchedulerState, model: Model) -> ModelView:
    failure = model.failure if model.state is State.UNLOADED else None
    return ModelView(
        name=model.name,
        aliases=model.entry.aliases,
        state=PUBLIC_WORDS[model.state],
        stopping=model.state is State.STOPPING,
        draining=model.drain is not None,
        progress=model.progress,
        child=model.child,
        leases=len(model.leases) + len(model.attached),
        waiting=len(model.waiters),
        pinned=model.pinned,
        reason=s.reason(model),
        failed=failure is not None,
        exit_code=model.exit_code if model.state is State.UNLOADED else None,
        signal=model.signal if model.state is State.UNLOADED else None,
        failures=model.failure.count if model.failure else 0,
        retry_at=failure.retry_at if failure else None,
        since=model.since,
        last_used_at=model.last_used_at,
        loaded_at=model.loaded_at if model.resident else None,
        held_until=model.held_until,
        failure=model.failure,
        held=_memory_held(s, model),
        need=model.need,
        devices=model.placement.devices if model.placement and model.resident else (),
    )


def _memory_held(s: SchedulerState, model: Model) -> Amounts:
    if not model.resident or s.ledger.margin is None:
        return {}
    return {name: amount for name, amount in s.ledger.held_by(model.child).items() if name != PROCESSES}
