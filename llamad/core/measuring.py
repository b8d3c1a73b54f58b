"""Measuring: what a model needs, found by a short process that loads no weights.

A need is measured once for a configuration, before its first load. A measuring that fails is no reason not to load: the
model is loaded unchecked, and measured again before a later load, `TRIES_MAX` times in all.
"""

from __future__ import annotations

from llamad.core.actions import Kill, Measure
from llamad.core.events import ChildExited, ChildMeasured, NeedDoubted
from llamad.core.lifecycle import after_exit, answer_unloads, take_child
from llamad.core.model import Model, State
from llamad.core.state import Deadline, SchedulerState, Timer

TRIES_MAX = 3
TAKES_S_MAX = 60.0
"""A measure child that is not gone after this long hangs."""
AT_ONCE_MAX = 2
"""Measure children at the same time: each keeps a core busy for as long as reading a vocabulary takes."""


def wanted(s: SchedulerState, model: Model) -> bool:
    """Its need has to be known before it can be given room."""
    unknown = model.need is None and model.measurings < TRIES_MAX
    return s.ledger.margin is not None and unknown and not model.load_unchecked


def begin(s: SchedulerState, model: Model, now: float) -> None:
    """UNLOADED -> MEASURING, unless enough others are being measured."""
    if len(s.measuring) >= AT_ONCE_MAX:
        return
    child = take_child(s, model)
    s.measuring[child] = model.name
    model.move("measure", now)
    model.measurings += 1
    model.last_word = None
    model.reason = "measuring what it needs"
    s.timers.set(Timer(Deadline.PROGRESS, model.name), now + TAKES_S_MAX)
    s.emit(Measure(child, model.name))
    s.note("measure", model.name, model.reason, child=child)


def measured(s: SchedulerState, event: ChildMeasured) -> None:
    model = s.by_child(event.child)
    if model is None or model.state is not State.MEASURING:
        return
    model.need, model.placement = event.need, None
    minimum, maximum = dict(event.need.minimum), dict(event.need.maximum)
    s.note("measured", model.name, "its need is known", minimum=minimum, maximum=maximum)


def doubt(s: SchedulerState, event: NeedDoubted) -> None:
    """Measure anew before the next load. What its process has taken is on the books by now."""
    model = s.models.get(event.model)
    if model is not None:
        model.need, model.measurings = None, 0


def call_off(s: SchedulerState, model: Model) -> None:
    """Nobody wants to know any more, or not of this configuration."""
    if model.state is State.MEASURING:
        s.note("measure-dropped", model.name, "measuring is called off", child=model.child)
        s.emit(Kill(model.child))


def give_up(s: SchedulerState, model: Model, message: str) -> None:
    """End a measure child that hangs. Its exit follows, and the model is loaded unchecked if it has no result."""
    model.last_word = model.last_word or ("measure-failed", message)
    s.note("give-up", model.name, message, child=model.child)
    s.emit(Kill(model.child))


def too_long(s: SchedulerState, model: Model) -> None:
    give_up(s, model, f"cannot measure {model.name!r}: its process is not gone after {TAKES_S_MAX:.0f} s")


def exited(s: SchedulerState, model: Model, event: ChildExited, now: float) -> None:
    """MEASURING -> UNLOADED, with or without a result."""
    del s.children[event.child]
    del s.measuring[event.child]
    s.timers.clear(Timer(Deadline.PROGRESS, model.name))
    model.move("exited", now)
    model.child = 0
    if model.need is None:
        model.load_unchecked = True
        why = model.last_word[1] if model.last_word else "the measure process ended without a result"
        s.note("measure-failed", model.name, f"loads unchecked: {why}", tries=model.measurings)
    model.reason = "waiting for room" if model.wanted else "not loaded"
    answer_unloads(s, model)
    after_exit(s, model, now)
