"""The model machine: one configured model and the life of its process.

    UNLOADED --measure--> MEASURING --exited--> UNLOADED          (its need is known now, or measuring failed)
    UNLOADED --spawned--> LOADING --ready--> LOADED --stop--> STOPPING --exited--> UNLOADED
    LOADED --sleep--> SLEEPING --wake--> LOADING                  (the process stays, weights and KV go and come back)
    LOADING, SLEEPING --stop--> STOPPING                          (a loading process is killed at once: nothing is lost)
    LOADING, LOADED, SLEEPING --exited--> UNLOADED                (unasked: the model has failed)

Beside the state stand three facts that are no states:

* a *drain*: the process takes no new leases and is stopped when its last one ends. It has a reason; a drain that is
  no longer wanted is lifted, and the process goes on as if nothing had been.
* *waiters*: requests and operators that want this model and cannot have it yet, because it has no process, or because
  all its slots are taken. A process gets one request more than it has slots, so that none is idle while the next is
  on its way; the others wait here, where clients take turns, and not in the process, where the first come would be
  the first served.
* a *failure*: what went wrong last, how often in a row, and until when new requests are refused.

A STOPPING model still holds its room. It is UNLOADED only when the kernel says that the process is gone. A MEASURING
model holds none: its process loads no weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from llamad.core.events import Amounts, LeaseKey, ModelEntry, Need, Placement
from llamad.core.waiters import Ticket, Waiters

SIGNAL_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}


class State(Enum):
    """Where a model's process is."""

    UNLOADED = "unloaded"
    MEASURING = "measuring"
    LOADING = "loading"
    LOADED = "loaded"
    SLEEPING = "sleeping"
    STOPPING = "stopping"


TRANSITIONS: dict[State, dict[str, State]] = {
    State.UNLOADED: {"measure": State.MEASURING, "spawned": State.LOADING},
    State.MEASURING: {"exited": State.UNLOADED},
    State.LOADING: {"ready": State.LOADED, "stop": State.STOPPING, "exited": State.UNLOADED},
    State.LOADED: {"sleep": State.SLEEPING, "stop": State.STOPPING, "exited": State.UNLOADED},
    State.SLEEPING: {"wake": State.LOADING, "stop": State.STOPPING, "exited": State.UNLOADED},
    State.STOPPING: {"exited": State.UNLOADED},
}

# llama.cpp has no word for a process on its way out; until it is gone it counts as what it was. Nor has it one for
# measuring, which is the first part of a load.
PUBLIC_WORDS = {
    State.UNLOADED: "unloaded",
    State.MEASURING: "loading",
    State.LOADING: "loading",
    State.LOADED: "loaded",
    State.SLEEPING: "sleeping",
    State.STOPPING: "loaded",
}


class Drain(IntEnum):
    """Why a loaded model takes no new leases, the weakest reason first."""

    ROOM = 1
    """Another model has waited too long; lifted when it no longer waits."""
    CHANGED = 2
    """Its configuration has changed; lifted if it changes back."""
    REMOVED = 3
    """It left the configuration; lifted if it comes back."""
    UNLOAD = 4
    """An operator wants it gone; lifted by an order to load it."""


class StopStage(Enum):
    """How hard a process has been asked to leave."""

    NONE = 0
    ASKED = 1
    TERMINATED = 2
    KILLED = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong last. `count` failures in a row; requests are refused until `retry_at`."""

    kind: str
    message: str
    count: int
    retry_at: float


@dataclass(slots=True)
class Model:
    """One model. Only the scheduler's own modules write here."""

    entry: ModelEntry
    state: State = State.UNLOADED
    child: int = 0
    slept: bool = False
    """A SLEEPING process has said what it still holds."""
    fingerprint: str = ""
    """Of the configuration that the process was started with."""
    progress: float = 0.0
    drain: Drain | None = None
    drain_cause: str = ""
    stop_stage: StopStage = StopStage.NONE
    ordered: bool = False
    """Loading by order (an operator's, or at start): it goes on though nobody waits."""
    need: Need | None = None
    """As measured; None: not yet, or it could not be."""
    placement: Placement | None = None
    """The way chosen of several; that of the process while there is one."""
    measurings: int = 0
    """How often measuring was tried for this configuration."""
    load_unchecked: bool = False
    """Measuring failed: the next load goes ahead without."""
    effective: Amounts | None = None
    """What the process took when it was last loaded."""
    out_of_memory: int = 0
    """How often in a row a load ran out of memory."""
    evict_one_more: bool = False
    """Before the retry somebody has to leave, whatever the books say."""
    held_until: float | None = None
    """Pinned by an operator for a while."""
    removed: bool = False
    """Gone from the configuration; forgotten when its process is."""
    leases: dict[LeaseKey, None] = field(default_factory=dict)
    attached: dict[LeaseKey, bool] = field(default_factory=dict)
    """Leases that keep it busy and take no slot: WebSockets, and those who follow a conversation. True: it is a use."""
    readers: dict[LeaseKey, None] = field(default_factory=dict)
    """Leases that are no use of the model: they neither keep it busy nor move `last_used_at`."""
    waiters: Waiters = field(default_factory=Waiters)
    slots: int = 0
    """Requests that the process works on at once; 0: unknown."""
    unload_tickets: list[Ticket] = field(default_factory=list)
    last_word: tuple[str, str] | None = None
    """Kind and message that the process itself gave for its coming exit."""
    given_up_in: State | None = None
    """The state in which its process hung and was given up: its end is a failure, though it was stopped."""
    failure: Failure | None = None
    reason: str = "never loaded"
    since: float = 0.0
    """When the state last changed."""
    exit_code: int | None = None
    signal: int | None = None
    """How the last process ended."""
    loaded_at: float | None = None
    last_used_at: float | None = None

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def serving(self) -> bool:
        """Takes new leases."""
        return self.state is State.LOADED and self.drain is None

    @property
    def least(self) -> Amounts:
        """What it needs of each memory, as far as it was measured."""
        return self.placement.minimum if self.placement else self.need.minimum if self.need else {}

    @property
    def most(self) -> Amounts | None:
        """What it can use of each memory; None: not known."""
        return self.placement.maximum if self.placement else self.need.maximum if self.need else None

    @property
    def full(self) -> bool:
        """Has as many requests as it may have at once."""
        limit = self.entry.concurrency_limit or (self.slots + 1 if self.slots else 0)
        return bool(limit) and len(self.leases) >= limit

    @property
    def resident(self) -> bool:
        """Has a process that holds room."""
        return self.state not in (State.UNLOADED, State.MEASURING)

    @property
    def settled(self) -> bool:
        """Its process holds what the books say. One that loads, or was stopped before it had loaded, holds less; one
        that falls asleep, too, until it says how much."""
        match self.state:
            case State.LOADING:
                return False
            case State.STOPPING:
                return self.progress == 1.0
            case State.SLEEPING:
                return self.slept
        return True

    @property
    def idle(self) -> bool:
        """Loaded or asleep, and used by nobody."""
        return self.state in (State.LOADED, State.SLEEPING) and not self.leases and not self.attached

    @property
    def idle_since(self) -> float:
        """The end of the last use, or of the load if there was none since."""
        return max(self.last_used_at or 0.0, self.loaded_at or 0.0)

    @property
    def pinned(self) -> bool:
        """Never leaves to make room for another."""
        return self.entry.pinned or self.held_until is not None

    @property
    def wanted(self) -> bool:
        """Somebody is served by loading it."""
        return bool(self.waiters) or self.ordered

    def move(self, happening: str, now: float) -> None:
        """Take one transition of the table; anything else is a fault of the scheduler itself."""
        try:
            self.state = TRANSITIONS[self.state][happening]
            self.since = now
        except KeyError:
            raise AssertionError(
                f"{self.name!r} is {self.state.value}, which knows no {happening!r}"
            ) from None


def exit_words(exit_code: int | None, signal: int | None) -> str:
    """`exited with status 1`, `was killed by SIGKILL`, `could not be started`."""
    if signal is not None:
        return f"was killed by {SIGNAL_NAMES.get(signal, f'signal {signal}')}"
    return f"exited with status {exit_code}" if exit_code is not None else "could not be started"
