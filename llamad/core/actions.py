"""What the scheduler asks of the shell. Imperative; the shell carries them out in order and reports what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llamad.core.events import Amounts, LeaseKey, Placement


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start an instance of `model` as child number `child`. Answered by ChildReady, ChildExited or ChildNotSpawned.

    `reserved`: bytes by device that it may grow to; None: as much as its configuration says. `maximum`: what it was
    measured to take at most; where that is reserved it has nothing to choose. `placement`: the devices that the room was
    found on; None: as configured.
    """

    child: int
    model: str
    reserved: Amounts | None = None
    maximum: Amounts | None = None
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """Start a measure child for `model`. Answered by ChildMeasured and ChildExited, or ChildNotSpawned."""

    child: int
    model: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Tell the child to release weights and KV. Answered by ChildSlept."""

    child: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Tell a sleeping child to load again. Answered as a Spawn is."""

    child: int


@dataclass(frozen=True, slots=True)
class ReadMemory:
    """Look at the devices now. Answered by MemoryRead."""


@dataclass(frozen=True, slots=True)
class AskExit:
    """Say `exit` on the child's pipe."""

    child: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM: the child did not leave when asked."""

    child: int


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL: nothing else helped, or nothing is lost by it (it was still loading)."""

    child: int


@dataclass(frozen=True, slots=True)
class QueueLease:
    """Tell the worker where its request stands: of a model that waits for room, in the queue of models; else among those
    who wait for the same one. 1 is the head."""

    key: LeaseKey
    position: int


@dataclass(frozen=True, slots=True)
class GrantLease:
    """Hand out the address and the token of `child`."""

    key: LeaseKey
    child: int
    model: str


@dataclass(frozen=True, slots=True)
class RefuseLease:
    """The one negative answer to an ask, in the parts of `llamad.errors.error_body`."""

    key: LeaseKey
    kind: str
    status: int
    message: str
    retry_after_s: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndLease:
    """Tell the holder of a granted lease why the child behind it is gone."""

    key: LeaseKey
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class AnswerTicket:
    """The end state an operator waited for is reached (`kind` empty), or cannot be."""

    ticket: int
    kind: str = ""
    status: int = 200
    message: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A decision, for the event ring: what was decided about which model, why, with the numbers."""

    kind: str
    model: str
    text: str
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finish:
    """Every child is gone and the daemon may exit. Follows a StopAsked, once."""


Action = (
    Spawn
    | Measure
    | Sleep
    | Wake
    | ReadMemory
    | AskExit
    | Terminate
    | Kill
    | QueueLease
    | GrantLease
    | RefuseLease
    | EndLease
    | AnswerTicket
    | Note
    | Finish
)
