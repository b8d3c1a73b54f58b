"""How the supervisor starts the front: one settings line, inherited listeners, and nothing else.

The contract of `python -m llamad.proxy`:

* stdin: one line of JSON, a `ProxySettings`, from `encode`. The pipe then stays open; its end says that the supervisor
  wants no front any more or is gone, and the front ends as after SIGTERM.
* file descriptors from `LISTENER_FD_FIRST` on: `listeners` sockets, bound and listening, in non-blocking mode or not. The
  front accepts on them and never unlinks or closes them for others, so two fronts may share them during a reload.
* environment: nothing is read. The front sets LISTEN_PID and LISTEN_FDS for gunicorn itself, as the pid is not known
  before the fork.
* stdout is not used, stderr carries log lines.
* each worker says `hello` on the lease socket once it serves; the end of that connection is its death.
* signals to the arbiter: TERM drains (running answers finish, at most `graceful_timeout_s`), INT and QUIT stop at once.
  When the supervisor dies, arbiter and workers end at once: there is nobody left to hold a lease from. When only the
  arbiter is killed, its workers finish what they have and go.
* exit status: 0 after TERM, INT, QUIT or end of file (before the front has its handlers, in its first tenths of a second,
  the signal itself); 1 for settings that cannot be used; 3 when workers cannot start.
"""

from __future__ import annotations

import msgspec

from llamad.errors import ProtocolError

LISTENER_FD_FIRST = 3
LINE_BYTES_MAX = 64 * 1024


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a front needs to know; durations in whole seconds where gunicorn counts in them.

    `timeout_s`: how long a client may be silent inside its request, and how long nothing may move in an exchange with an
    instance; `body_timeout_s`: how long the whole body may take, 0 for ever. `keepalive_s`: how long an idle connection, or
    one that has not sent a whole request head, is kept. `connections_max`: client connections of one worker.
    `websocket_message_bytes`: the largest message on a WebSocket; `websocket_idle_s`: how long one may be without any
    message, 0 for ever.
    `ssl_key_file` and `ssl_cert_file`: both, for TLS on every listener, or neither.
    """

    lease_socket: str
    admin_socket: str
    listeners: int
    workers: int = 2
    max_body_bytes: int = 128 << 20
    timeout_s: int = 600
    body_timeout_s: float = 300.0
    keepalive_s: int = 75
    graceful_timeout_s: int = 600
    connections_max: int = 4096
    websocket_message_bytes: int = 16 << 20
    websocket_idle_s: float = 600.0
    ssl_key_file: str = ""
    ssl_cert_file: str = ""
    log_level: str = "info"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ProxySettings).decode


def encode(settings: ProxySettings) -> bytes:
    """One line, with its newline."""
    return _encode(settings) + b"\n"


def decode(line: bytes) -> ProxySettings:
    """The settings of a line. Raises ProtocolError."""
    try:
        return _decode(line)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"cannot read the front's settings: {error}") from error
