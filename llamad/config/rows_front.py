"""Rows of the option table: who may come in at the public port, and what browsers are told. Names are llama-server's."""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.secrets import KeyList
from llamad.config.values import Duration, Flag, Listing, Mode, Size, Text
from llamad.units import MIB

_KEYS = "Keys"
_PORT = "Public port"
_BROWSERS = "Browsers of other origins"

_DAEMON = Scope.DAEMON
_FILE = Text("FILE", may_be_empty=False, path=True)
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"

ROWS: tuple[Option, ...] = (
    Option(
        "socket-mode",
        Mode(),
        "rights of public Unix sockets, in octal digits",
        _DAEMON,
        _PORT,
        default=0o660,
        default_text="660",
        setting="socket_mode",
        restart=True,
    ),
    Option(
        "socket-group",
        Text("GROUP"),
        "group of public Unix sockets",
        _DAEMON,
        _PORT,
        default_text="llamad's own",
        setting="socket_group",
        restart=True,
    ),
    Option(
        "websocket-idle-seconds",
        Duration(),
        "seconds without a message after which a WebSocket is closed, 0 for never; an open one keeps its model loaded",
        _DAEMON,
        _PORT,
        default=600.0,
        setting="websocket_idle_s",
        restart=True,
    ),
    Option(
        "websocket-max-message-bytes",
        Size(most=2**31),
        "largest message on a WebSocket, also as 64M or 1GiB",
        _DAEMON,
        _PORT,
        default=16 * MIB,
        default_text="16MiB",
        setting="websocket_message_bytes",
        restart=True,
    ),
    Option(
        "ssl-key-file",
        _FILE,
        "private key (PEM) of the certificate; with it every public listener speaks TLS",
        _DAEMON,
        _PORT,
        default_text="none",
        setting="ssl_key_file",
        restart=True,
    ),
    Option(
        "ssl-cert-file",
        _FILE,
        "certificate (PEM) with its chain; a reload picks up what the files hold then",
        _DAEMON,
        _PORT,
        default_text="none",
        setting="ssl_cert_file",
        restart=True,
    ),
    Option(
        "api-key",
        KeyList(),
        "keys that open the public port, plain or as sha256:HEX; better in a file",
        _DAEMON,
        _KEYS,
        default_text="none: the port is open",
        env=("LLAMA_API_KEY", "LLAMA_ARG_API_KEY"),
        setting="api_key",
    ),
    Option(
        "api-key-file",
        _FILE,
        "file of keys, one a line: KEY [name=N] [scope=infer|manage] [models=A,B] [max-concurrent=N] [rpm=N] [tpm=N]",
        _DAEMON,
        _KEYS,
        default_text="none",
        setting="api_key_file",
    ),
    Option(
        "cors-origins",
        Listing("ORIGIN,…", r"[!-~]+", "an origin"),
        "origins whose pages may use the port: * for any, localhost for any port of the browser's own machine",
        _DAEMON,
        _BROWSERS,
        default=("*",),
        setting="cors_origins",
    ),
    Option(
        "cors-methods",
        Listing("METHOD,…", _TOKEN, "a method"),
        "methods that they may use",
        _DAEMON,
        _BROWSERS,
        default=("GET", "POST", "DELETE", "OPTIONS"),
        setting="cors_methods",
    ),
    Option(
        "cors-headers",
        Listing("HEADER,…", _TOKEN, "a header's name"),
        "request headers that they may send, * for any",
        _DAEMON,
        _BROWSERS,
        default=("*",),
        setting="cors_headers",
    ),
    Option(
        "cors-credentials",
        Flag(),
        "whether browsers may send cookies and the like; with --cors-origins * each origin is then said back",
        _DAEMON,
        _BROWSERS,
        default=True,
        negatives=("no-cors-credentials",),
        setting="cors_credentials",
    ),
)
