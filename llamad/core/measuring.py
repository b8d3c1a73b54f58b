"""Measuring: what a model needs, found by a short process that loads no weights.

A need is measured once for a configuration, before its first load. A measuring that fails is no reason not to load: the
model is loaded unchecked, and measured again before a later load, `TRIES_MAX` times in all.
"""

from __future__ import annotations

from llamad.core.actions import Kill, Measure
from llamad.core.events import ChildExited, ChildMeasured
from llamad.core.lifecycle import after_exit, answer_unloads, take_child
from llamad.core.model import Model, State
from llamad.core.state import SchedulerState

TRIES_MAX = 3
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
    s.emit(Measure(child, model.name))
    s.note("measure", model.name, model.reason, child=child)


def measured(s: SchedulerState, event: ChildMeasured) -> None:
    model = s.by_child(event.child)
    if model is None or model.state is not State.MEASURING:
        return
    model.need = event.need
    minimum, maximum = dict(event.need.minimum), dict(event.need.maximum)
    s.note("measured", model.name, "its need is known", minimum=minimum, maximum=maximum)


def call_off(s: SchedulerState, model: Model) -> None:
    """Nobody wants to know any more, or not of this configuration."""
    if model.state is State.MEASURING:
        s.emit(Kill(model.child))


def exited(s: SchedulerState, model: Model, event: ChildExited, now: float) -> None:
    """MEASURING -> UNLOADED, with or without a result."""
    del s.children[event.child]
    del s.measuring[event.child]
    model.move("exited", now)
    model.child = 0
    if model.need is None:
        model.load_unchecked = True
        why = model.last_word[1] if model.last_word else "the measure process ended without a result"
        s.note("measure-failed", model.name, f"loads unchecked: {why}", tries=model.measurings)
    model.reason = "waiting for room" if model.wanted else "not loaded"
    answer_unloads(s, model)
    after_exit(s, model, now)
