"""The child pipe: what a supervisor and its children say to each other.

The protocol is llama.cpp's router-to-child protocol (tools/server, `server-models.cpp`), so that the real
`llama-server` can stand in for our instance:

* stdin, parent to child: `cmd_router_to_child:exit`. End of file says the same, and that the parent is gone.
* stdout, child to parent: `cmd_child_to_router:state:{"state": STATE, "payload": {...}}`.
* stderr carries the logs. Any other line on stdout is a log line, too.

Our own children add, under the same two prefixes:

* `cmd_router_to_child:start:{...}`, the first line: role, model and options. It comes by pipe and not by argv because
  argv is public in `/proc` and the caller's token is a secret.
* `cmd_router_to_child:sleep` and `cmd_router_to_child:wake`: release weights and KV, load them again. Carried out in
  order; answered by the states `sleeping` (payload: `bytes`) and `loading` … `ready`.
* `cmd_router_to_child:stop:{"ticket": N}`: end that conversation and forget it. Not answered.
* `cmd_child_to_router:conversation:{"ticket": N, "state": "ended"|"forgotten"}`: its generation is over; its output can
  be replayed no more.
* `cmd_child_to_router:stats:{...}`: counters of an instance, see Stats.
* `cmd_child_to_router:item:{...}`: one piece of a scan's result (so that no line need hold a whole registry).
* `cmd_child_to_router:state:{"state": "failed", "payload": {"kind", "message"}}`: why a child is about to exit non-zero.

Exit statuses: 0 done, 1 failed and said why, 70 a bug, EXIT_OUT_OF_MEMORY for a device that is full, also said.

A link is a machine; a report out of order is a ProtocolError, and the supervisor ends such a child.

    HELLO --loading|measuring|downloading|scanning--> WORKING --ready--> READY <--sleeping/ready--> SLEEPING
    (any) --failed--> EXITING;   WORKING --scanned|measured|downloaded--> EXITING
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from llamad.errors import ProtocolError

LINE_BYTES_MAX = 1 << 20
EXIT_OUT_OF_MEMORY = 71
"""The `failed` before it is of kind `out-of-memory`, unless not even the report could be made."""
HEARTBEAT_S = 5.0
"""A busy instance sends Stats at least this often."""
ROLE_ENV = "LLAMA_SERVER_CHILD_ROLE"
ROUTER_PORT_ENV = "LLAMA_SERVER_ROUTER_PORT"

_COMMAND = b"cmd_router_to_child:"
_REPORT = b"cmd_child_to_router:"


class Start(msgspec.Struct, frozen=True):
    """What the child is to be. `body` is the role's own document (see child/ for each role)."""

    role: str
    body: dict[str, Any] = {}


class Exit(msgspec.Struct, frozen=True):
    """Finish and leave."""


class Sleep(msgspec.Struct, frozen=True):
    """Release weights and KV, keep the process and its listener.

    Answered by `sleeping`, again if it sleeps already; by `ready` from an instance that has work to do and stays awake.
    """


class Wake(msgspec.Struct, frozen=True):
    """Load again what was released, with the same settings.

    Answered by `loading` … `ready`, at once by `ready` from an instance that is awake, or by `failed` and exit.
    """


class Stop(msgspec.Struct, frozen=True):
    """End the conversation with this ticket, and forget it."""

    ticket: int


class State(msgspec.Struct, frozen=True):
    """Where the child is in its life, with the payload of that state.

    `loading`: `{"stages": [...], "current": "text_model", "value": 0.0..1.0}` (llama.cpp's own payload).
    `ready`: `{"address": "127.0.0.1:PORT" | "unix:/path", "n_ctx", "n_ctx_slot", "n_slots", "n_gpu_layers", "bytes":
    {DEVICE: total}, "bytes_detail": {DEVICE: {purpose: bytes, "total"}}, "meta": {...}}`: what was chosen, and what the
    process holds by the yardstick of the measure role.
    `sleeping`: `bytes` and `bytes_detail`, of what it still holds.
    `failed`: `{"kind", "message"}`.
    """

    state: str
    payload: dict[str, Any] = {}


class Stats(msgspec.Struct, frozen=True):
    """Counters of a running instance, as a flat document of numbers.

    Since the start of the process, sleep or not: `steps` (decode calls that have come back), `decoded_tokens`,
    `prompt_tokens`, `cached_tokens`, `predicted_tokens`, `requests_done`, `requests_cancelled`, `requests_failed`,
    `generating_max`. Now: `slots_busy`, `queued` (requests without a slot).

    At most one a second, when something has changed; while `slots_busy + queued > 0` at least one each HEARTBEAT_S, changed
    or not. So a parent can tell three things apart. Busy, and `steps` has not moved for longer than one decode call can
    take: the engine hangs. Busy, and no line for several HEARTBEAT_S: the whole process hangs, or is stopped. Not busy:
    silence is its right.
    """

    body: dict[str, Any]


class Item(msgspec.Struct, frozen=True):
    """One piece of a scan's result: `body["item"]` is `settings`, `model` or `problem`."""

    body: dict[str, Any]


class Conversation(msgspec.Struct, frozen=True):
    """What has become of a conversation: `ended` (it can still be replayed), or `forgotten`.

    `tokens`: what it took, prompt and answer together; said once.
    """

    ticket: int
    state: str
    tokens: int = 0


Command = Start | Exit | Sleep | Wake | Stop
Report = State | Stats | Item | Conversation

_BARE: dict[bytes, Command] = {b"exit": Exit(), b"sleep": Sleep(), b"wake": Wake()}

_encode = msgspec.json.Encoder().encode
_decode_document = msgspec.json.Decoder(dict[str, Any]).decode


def encode(message: Command | Report) -> bytes:
    """One line, with its newline."""
    match message:
        case Exit() | Sleep() | Wake():
            return _COMMAND + type(message).__name__.lower().encode() + b"\n"
        case Start():
            return _COMMAND + b"start:" + _encode({"role": message.role, "body": message.body}) + b"\n"
        case Stop():
            return _COMMAND + b"stop:" + _encode({"ticket": message.ticket}) + b"\n"
        case Conversation():
            document = {"ticket": message.ticket, "state": message.state}
            return _REPORT + b"conversation:" + _encode(document) + b"\n"
        case State():
            document = {"state": message.state, "payload": message.payload}
            return _REPORT + b"state:" + _encode(document) + b"\n"
        case Stats():
            return _REPORT + b"stats:" + _encode(message.body) + b"\n"
        case Item():
            return _REPORT + b"item:" + _encode(message.body) + b"\n"


def parse_command(line: bytes) -> Command | None:
    """A command, or None for a line that is none (unknown commands are ignored, as llama.cpp does)."""
    line = line.strip()
    if not line.startswith(_COMMAND):
        return None
    verb, _, rest = line[len(_COMMAND) :].partition(b":")
    if verb in _BARE:
        return _BARE[verb]
    if verb == b"start":
        document = _document(rest)
        return Start(role=str(document.get("role", "")), body=_sub_document(document, "body"))
    if verb == b"stop":
        return Stop(_ticket(_document(rest)))
    return None


def parse_report(line: bytes) -> Report | None:
    """A report, or None for a line that is an ordinary log line. Raises ProtocolError for a broken report."""
    line = line.strip()
    if not line.startswith(_REPORT):
        return None
    verb, _, rest = line[len(_REPORT) :].partition(b":")
    if verb == b"state":
        document = _document(rest)
        return State(state=str(document.get("state", "")), payload=_sub_document(document, "payload"))
    if verb == b"stats":
        return Stats(_document(rest))
    if verb == b"item":
        return Item(_document(rest))
    if verb == b"conversation":
        document = _document(rest)
        return Conversation(_ticket(document), str(document.get("state", "")))
    return None


def _document(data: bytes) -> dict[str, Any]:
    try:
        return _decode_document(data)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"cannot read a line of the child pipe: {error}") from error


def _ticket(document: dict[str, Any]) -> int:
    ticket = document.get("ticket")
    if not isinstance(ticket, int):
        raise ProtocolError("cannot read a line of the child pipe: 'ticket' is no number")
    return ticket


def _sub_document(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key) or {}
    if not isinstance(value, dict):
        raise ProtocolError(f"cannot read a line of the child pipe: {key!r} is no object")
    return value


class LinkState(Enum):
    """Where a child is, as seen by its parent."""

    HELLO = "hello"
    WORKING = "working"
    READY = "ready"
    SLEEPING = "sleeping"
    EXITING = "exiting"


_WORK = {"downloading", "measuring", "loading", "scanning"}
_DONE = {"downloaded", "measured", "scanned"}

TRANSITIONS: dict[LinkState, dict[str, LinkState]] = {
    LinkState.HELLO: {
        **dict.fromkeys(_WORK, LinkState.WORKING),
        **dict.fromkeys(_DONE, LinkState.EXITING),
        "ready": LinkState.READY,
        "failed": LinkState.EXITING,
    },
    LinkState.WORKING: {
        **dict.fromkeys(_WORK, LinkState.WORKING),
        **dict.fromkeys(_DONE, LinkState.EXITING),
        "ready": LinkState.READY,
        "failed": LinkState.EXITING,
    },
    LinkState.READY: {"sleeping": LinkState.SLEEPING, "ready": LinkState.READY, "failed": LinkState.EXITING},
    # Waking is a load: weights come back, with progress.
    LinkState.SLEEPING: {
        "loading": LinkState.WORKING,
        "ready": LinkState.READY,
        "sleeping": LinkState.SLEEPING,
        "failed": LinkState.EXITING,
    },
    LinkState.EXITING: {},
}


class ChildLink:
    """The parent's view of one child's order of reports."""

    def __init__(self) -> None:
        self.state = LinkState.HELLO

    def receive(self, report: Report) -> None:
        """Move with a State report; others do not move the link. An illegal move raises and changes nothing."""
        if not isinstance(report, State):
            return
        try:
            self.state = TRANSITIONS[self.state][report.state]
        except KeyError:
            raise ProtocolError(
                f"cannot take the report {report.state!r} from a child that is {self.state.value}"
            ) from None
