"""The lease socket: how a proxy worker gets the right to send one request to one instance.

One connection a worker, many leases on it; each message is a line of JSON with its `type`. A lease is numbered by its
worker; the supervisor knows it as (worker, lease). From the worker's side:

    ASKED --queued*--> QUEUED --granted--> GRANTED --release--> RELEASED
    ASKED, QUEUED --refused--> REFUSED            GRANTED --detach--> DETACHED
    ASKED, QUEUED --cancel--> CANCELLED           (a grant that crosses a cancel is void: the supervisor has freed it)

Rules that both ends rely on:

* Every `ask` is answered by exactly one of `granted` and `refused`, unless the worker said `cancel`.
* `cancel` and `release` are not answered. After `cancel` the worker ignores a late `granted` for that lease.
* End of file ends all leases of that worker, except that a supervisor that comes back learns what is still held from
  `hello.held`.
* `ended` tells the holder of a lease why the process behind it is gone. It needs no answer; the worker still says
  `release`.
* A lease that is granted with `keep` may serve any number of requests, one after another, of the kind that it was asked for:
  until SERVE_S after its grant, or until the next `recall`. Then it is released as soon as it serves none, and before that
  when it has served none for KEEP_S. The supervisor takes it for a lease like any other all that while.
* `policy` follows every `hello` at once, and comes again whole whenever it changes. A worker without one serves nobody.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from llamad.errors import ProtocolError
from llamad.wire.lines import LineBuffer
from llamad.wire.policy import Cors, Key, Rules

LINE_BYTES_MAX = 64 * 1024
# A policy with as many keys as there may be is one line, too.
LINE_TO_WORKER_BYTES_MAX = 1 << 20
LEASES_PER_WORKER_MAX = 8192
KEEP_S = 0.05
"""Long against the time between two small requests, short enough that what has no requests shows none."""
SERVE_S = 0.5
"""Long against KEEP_S, as an ask doubles what a small request takes; short against the wait for a drain."""
LOOKUP_MAX = 64
"""Conversations in one `lookup`, and in its answer."""


class Message(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower, omit_defaults=True):
    """A line of the lease socket."""


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """A lease that its worker holds across a new connection."""

    lease: int
    child: int
    model: str


# ---- worker to supervisor


class Hello(Message, frozen=True):
    """First message of a connection."""

    pid: int
    held: list[Held] = []


class Ask(Message, frozen=True):
    """Ask for a lease on `model` (an id or an alias).

    `autoload`: None = the daemon's rule, else the request's own wish. `load=False` asks for a lease only if the model
    is resident now and counts as no use (reads such as /props). `avoid` is the number of a child that this worker has
    just seen die under the same request: the answer is never a grant on it unless it turns out to be alive. `client`:
    whose turn it is goes round these (a key's name or a peer's address, never a key). `slot=False`: it keeps the process
    busy, but takes none of its slots (a WebSocket). `progress`: say `progress` while it loads.

    `conversation` "": a request that ends with its client. `ticket`: of this request's earlier grant, when its instance
    has died and it asks again.
    """

    lease: int
    model: str
    autoload: bool | None = None
    load: bool = True
    avoid: int = 0
    client: str = ""
    slot: bool = True
    progress: bool = False
    conversation: str = ""
    owner: str = ""
    ticket: int = 0


class Cancel(Message, frozen=True):
    """The client is gone before the grant."""

    lease: int


class Release(Message, frozen=True):
    """The request is over. `outcome`: `ok`, `hung-up` (client left), `died` (instance broke off), `failed`.

    `tokens`: prompt and answer together, counted for metered keys only.
    """

    lease: int
    outcome: str = "ok"
    status: int = 0
    sent_bytes: int = 0
    took_s: float = 0.0
    tokens: int = 0


class Detach(Message, frozen=True):
    """The client of this conversation is gone, and its instance goes on."""

    lease: int


class Where(Message, frozen=True):
    """Ask for a lease on the instance that has this conversation. It is no use of the model and never loads it."""

    lease: int
    conversation: str
    owner: str = ""


class Lookup(Message, frozen=True):
    """Which of these conversations are there? An id stands for itself and for any that begins with it and `::`."""

    lease: int
    conversations: list[str]
    owner: str = ""


class Stop(Message, frozen=True):
    """End this conversation and forget it, whatever it is doing; if there is none, that is as good."""

    lease: int
    conversation: str
    owner: str = ""


# ---- supervisor to worker


class Policy(Message, frozen=True):
    """Who may come in and what browsers may do. `closed`: a key is needed; without it `keys` has none.

    `tls`: changes when the certificate's files have changed, which are then to be read again.
    """

    closed: bool = False
    keys: tuple[Key, ...] = ()
    cors: Cors = Cors()
    tls: str = ""


class Queued(Message, frozen=True):
    """Waiting; `position` 1 is the head of the queue of models, or of those who wait for a model that loads or is full.
    Repeated when it changes."""

    lease: int
    position: int


class Granted(Message, frozen=True):
    """Send the request to `address` (`127.0.0.1:PORT` or `unix:/path`) with `Authorization: Bearer token`.

    `model` is the id that the alias resolved to. `rules`: how the request's body is changed first. `ticket` 0: it is no
    conversation. `keep`: further requests of its kind need not ask.
    """

    lease: int
    child: int
    model: str
    address: str
    token: str
    rules: Rules | None = None
    ticket: int = 0
    keep: bool = False


class Recall(Message, frozen=True):
    """Somebody waits: give back what is kept and serves nobody, and keep nothing that has been granted by now."""


class Progress(Message, frozen=True):
    """The model that this lease waits for is loaded this far, 0.0 to 1.0."""

    lease: int
    value: float


class Refused(Message, frozen=True):
    """No lease: the body that the client is to get, in the parts of `llamad.errors.error_body`."""

    lease: int
    kind: str
    status: int
    message: str
    retry_after_s: float | None = None
    details: dict[str, Any] = {}


class Ended(Message, frozen=True):
    """The child behind this lease is gone."""

    lease: int
    kind: str
    message: str


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a conversation is. `address` empty: it has no instance, it waits for one or has lost it (`over`).

    `started_at`: seconds since the epoch.
    """

    conversation: str
    started_at: int
    over: bool = False
    ticket: int = 0
    address: str = ""
    token: str = ""


class Found(Message, frozen=True):
    """The answer to a `lookup`: those that are there, at most LOOKUP_MAX."""

    lease: int
    places: list[Place]


class Stopped(Message, frozen=True):
    """The answer to a `stop`."""

    lease: int


FromWorker = Hello | Ask | Cancel | Release | Detach | Where | Lookup | Stop
FromSupervisor = Policy | Queued | Progress | Granted | Recall | Refused | Ended | Found | Stopped

_encode = msgspec.json.Encoder().encode
_decode_from_worker = msgspec.json.Decoder(FromWorker).decode
_decode_from_supervisor = msgspec.json.Decoder(FromSupervisor).decode


def encode(message: Message) -> bytes:
    """One line, with its newline."""
    return _encode(message) + b"\n"


class WorkerSide:
    """Decoder of a worker's end."""

    def __init__(self) -> None:
        self._lines = LineBuffer(LINE_TO_WORKER_BYTES_MAX)

    def feed(self, data: bytes) -> list[FromSupervisor]:
        return [_decoded(_decode_from_supervisor, line) for line in self._lines.feed(data)]


class SupervisorSide:
    """Decoder of the supervisor's end. The first message must be a Hello and no other may be one."""

    def __init__(self) -> None:
        self._lines = LineBuffer(LINE_BYTES_MAX)
        self._greeted = False

    def feed(self, data: bytes) -> list[FromWorker]:
        messages = []
        for line in self._lines.feed(data):
            message = _decoded(_decode_from_worker, line)
            if isinstance(message, Hello) is self._greeted:
                raise ProtocolError("cannot take this message here: a connection says hello once, first")
            self._greeted = True
            messages.append(message)
        return messages


def _decoded(decode: Any, line: bytes) -> Any:
    try:
        return decode(line)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"cannot read a line of the lease socket: {error}") from error


class LeaseState(Enum):
    """A lease in its worker's eyes."""

    ASKED = "asked"
    QUEUED = "queued"
    GRANTED = "granted"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    RELEASED = "released"
    DETACHED = "detached"


TRANSITIONS: dict[LeaseState, dict[str, LeaseState]] = {
    LeaseState.ASKED: {
        "queued": LeaseState.QUEUED,
        "progress": LeaseState.QUEUED,
        "granted": LeaseState.GRANTED,
        "refused": LeaseState.REFUSED,
        "cancel": LeaseState.CANCELLED,
    },
    LeaseState.QUEUED: {
        "queued": LeaseState.QUEUED,
        "progress": LeaseState.QUEUED,
        "granted": LeaseState.GRANTED,
        "refused": LeaseState.REFUSED,
        "cancel": LeaseState.CANCELLED,
    },
    LeaseState.GRANTED: {
        "ended": LeaseState.GRANTED,
        "release": LeaseState.RELEASED,
        "detach": LeaseState.DETACHED,
    },
    LeaseState.REFUSED: {},
    LeaseState.CANCELLED: {},
    LeaseState.RELEASED: {},
    LeaseState.DETACHED: {},
}
