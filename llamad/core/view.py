"""What others may read of the scheduler: values, made on request. Reading is advice; only events change anything."""

from __future__ import annotations

from dataclasses import dataclass, field

from llamad.core.events import Amounts, Need
from llamad.core.model import Failure


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model as status pages show it. Times are the scheduler's own clock (seconds, monotonic).

    `state` is one of llama.cpp's public words. `child` is 0 when there is none. `reason` says, for people, why the
    model is in its state.
    """

    name: str
    aliases: tuple[str, ...]
    state: str
    stopping: bool
    draining: bool
    progress: float
    child: int
    leases: int
    waiting: int
    pinned: bool
    reason: str
    failed: bool
    exit_code: int | None
    signal: int | None
    failures: int
    retry_at: float | None
    since: float
    """When the state last changed."""
    last_used_at: float | None
    loaded_at: float | None
    held_until: float | None = None
    """The end of a hold."""
    failure: Failure | None = None
    """The last one, also when the model is loaded again by now."""
    held: Amounts = field(default_factory=dict)
    """What it holds on the books of memory."""
    need: Need | None = None
    devices: tuple[str, ...] = ()
    """Where it was placed, if there was a choice."""
    """As measured."""


@dataclass(frozen=True, slots=True)
class QueueView:
    """One entry of the queue of models, in order."""

    model: str
    waiters: int
    since: float
    draining: tuple[str, ...]
    """Models that take no new leases so that this entry gets its room."""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """The books of one memory, in bytes. `available` may be negative: others have taken what was promised."""

    name: str
    total: int
    external: int
    held: int
    margin: int
    available: int


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """The whole scheduler at one moment."""

    models: tuple[ModelView, ...]
    queue: tuple[QueueView, ...]
    residents: int
    models_max: int
    stopping: bool
    devices: tuple[DeviceView, ...] = ()
    """Empty where memory is not booked."""
    read_at: float | None = None
    """When the devices were looked at last, unless that is outdated."""
