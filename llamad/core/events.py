"""What can happen to the scheduler. Past tense; each says only what the shell saw, never what should follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Amounts = Mapping[str, int]
"""Device name to bytes."""


class LeaseKey(NamedTuple):
    """A lease, named by the proxy worker that asked for it and that worker's own number for it."""

    worker: int
    lease: int


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What the scheduler has to know of a configured model.

    `fingerprint` changes when a running instance no longer is what the configuration says, and must be replaced.
    """

    name: str
    aliases: tuple[str, ...] = ()
    fingerprint: str = ""
    pinned: bool = False
    load_on_startup: bool = False
    stop_timeout_s: float = 10.0
    priority: int = 0
    """Higher goes first; each step is worth `queue.PRIORITY_STEP_S` of waiting, so the low still advance."""
    sleep_idle_s: float = 0.0
    """Weights and KV are released after this long without use; 0: never."""
    concurrency_limit: int = 0
    """Requests at the same time; 0: as many as the instance has slots, and one that is ready to follow."""
    unload_idle_s: float = 0.0
    """The process ends after this long without use; 0: never."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The operator's bounds. `models_max` 0: no limit by count. `queue_timeout_s` 0: wait for ever."""

    models_max: int = 4
    autoload: bool = True
    drain_after_s: float = 30.0
    queue_timeout_s: float = 600.0
    max_queued: int = 512
    abandon_after_s: float = 60.0
    """A load that nobody waits for any more goes on this long (it is dropped at once when another needs the room)."""
    load_timeout_s: float = 0.0
    """A load that reports no progress for this long is given up; 0: never."""
    margin_bytes: int | None = None
    """Memory kept free on every device; None: memory is not booked."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One way to put a model on devices: all of it on one, or `split` over several in these shares of its layers."""

    devices: tuple[str, ...]
    minimum: Amounts
    maximum: Amounts
    split: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """What an instance will take, as a measure child found: with the smallest context it may run with, and with the
    largest it can use. Equal when nothing is left to choose.

    `placements`: the ways to put it on devices, if there is more than one; `minimum` and `maximum` are what it takes
    as configured.
    """

    minimum: Amounts
    maximum: Amounts
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """A device as just seen, in bytes. `ours`: (child, bytes) where the device tells processes apart, else empty.

    `free` None: nobody can tell; what the books say stands, and what a gone process held counts as given back.
    """

    name: str
    total: int
    free: int | None
    ours: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ModelsConfigured:
    """The registry was read: at the start, or again on a reload. `starting` loads what wants to be loaded at start."""

    models: tuple[ModelEntry, ...]
    limits: Limits = field(default_factory=Limits)
    starting: bool = False


@dataclass(frozen=True, slots=True)
class LeaseAsked:
    """A request for `model` (id or alias) wants an instance. Fields as in `wire.lease.Ask`."""

    key: LeaseKey
    model: str
    autoload: bool | None = None
    load: bool = True
    avoid: int = 0
    client: str = ""
    """Whose turn it is goes round these."""
    slot: bool = True
    """False: it keeps the model busy without being work for one of its slots (a WebSocket)."""


@dataclass(frozen=True, slots=True)
class LeaseCancelled:
    """The client left before the grant."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """The request is over, however it ended."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class LeaseDetached:
    """A granted lease goes on under another name: its worker has nothing to do with it any more."""

    key: LeaseKey
    to: LeaseKey


@dataclass(frozen=True, slots=True)
class LeaseFollowed:
    """Somebody wants to read what a request on `child` has put out. Answered as an ask is, at once."""

    key: LeaseKey
    child: int


@dataclass(frozen=True, slots=True)
class LeaseAnnounced:
    """A worker that reconnected still holds this lease on `child`."""

    key: LeaseKey
    child: int


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker's connection ended; so did all its leases."""

    worker: int


@dataclass(frozen=True, slots=True)
class LoadAsked:
    """An operator wants `model` loaded. Answered once, by `AnswerTicket`. Clears a back-off."""

    ticket: int
    model: str


@dataclass(frozen=True, slots=True)
class UnloadAsked:
    """An operator wants `model` gone: after its running requests, or with `force` at once."""

    ticket: int
    model: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class PinAsked:
    """An operator pins or unpins `model`; a pin with `for_s` ends by itself (a hold)."""

    ticket: int
    model: str
    pinned: bool
    for_s: float | None = None


@dataclass(frozen=True, slots=True)
class TicketDropped:
    """Nobody listens for the answer to this ticket any more. What it began goes on."""

    ticket: int


@dataclass(frozen=True, slots=True)
class ChildProgressed:
    """A loading child is this far: 0.0 to 1.0."""

    child: int
    progress: float


@dataclass(frozen=True, slots=True)
class ChildMeasured:
    """A measure child found out what its model needs. Its exit follows."""

    child: int
    need: Need


@dataclass(frozen=True, slots=True)
class NeedDoubted:
    """What was measured of `model` no longer holds: it took more, or the devices are others now."""

    model: str


@dataclass(frozen=True, slots=True)
class ChildReady:
    """A child serves requests. `effective`: what it really took, `slots`: how many requests at once, if it says so."""

    child: int
    effective: Amounts | None = None
    slots: int = 0


@dataclass(frozen=True, slots=True)
class ChildSlept:
    """A child has released weights and KV. `effective`: what it still holds."""

    child: int
    effective: Amounts | None = None


@dataclass(frozen=True, slots=True)
class ChildStalled:
    """A child answers no more, though it is alive. `message` says what was missed for how long."""

    child: int
    message: str


@dataclass(frozen=True, slots=True)
class ChildFailed:
    """A child said why it is about to exit."""

    child: int
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class ChildExited:
    """A child is gone, its pipes are drained. Exactly one of `exit_code` and `signal` is set.

    `tail` is the end of its log, for the message.
    """

    child: int
    exit_code: int | None = None
    signal: int | None = None
    tail: str = ""


@dataclass(frozen=True, slots=True)
class ChildNotSpawned:
    """The process could not be started at all."""

    child: int
    message: str


@dataclass(frozen=True, slots=True)
class MemoryRead:
    """The devices were looked at, as ReadMemory asked, or by the shell's own accord."""

    readings: tuple[DeviceReading, ...]


@dataclass(frozen=True, slots=True)
class ClockTicked:
    """`Scheduler.next_deadline()` has come."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The daemon is to finish: no new leases; running requests may end until `deadline`; then everything goes."""

    deadline: float


Event = (
    ModelsConfigured
    | LeaseAsked
    | LeaseCancelled
    | LeaseReleased
    | LeaseDetached
    | LeaseFollowed
    | LeaseAnnounced
    | WorkerLost
    | LoadAsked
    | UnloadAsked
    | PinAsked
    | TicketDropped
    | ChildProgressed
    | ChildMeasured
    | NeedDoubted
    | ChildReady
    | ChildSlept
    | ChildStalled
    | ChildFailed
    | ChildExited
    | ChildNotSpawned
    | MemoryRead
    | ClockTicked
    | StopAsked
)
