"""The gate: whether a request may come in at all, before a byte of its body is taken. Pure.

    what                                                    key that opens it
    /health, /v1/health, but for an upgrade                 none is needed
    /models/load, unload, reload; POST and DELETE /models;
    GET /models?reload; POST /slots/..., /lora-adapters     scope manage
    /metrics, /models/sse: they speak of all models         any that is not limited to some
    everything else, what does not exist included           any

Which models a key may use is asked of the supervisor with the lease, as only it knows what a name stands for; it also
asks for the scope again where the order is carried out. Without keys the gate is open and clients are told apart by
their address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from enum import Enum
from typing import Any
from urllib.parse import parse_qs

from llamad.errors import RequestError, UnavailableError
from llamad.proxy.keys import Keyring
from llamad.wire.lease import Policy
from llamad.wire.policy import Key

KEY = "llamad.key"
CLIENT = "llamad.client"
QUERY_FIELDS_MAX = 64
IPV6_CLIENT_BITS = 64

_LOCAL = frozenset(("", "127.0.0.1", "::1"))


class Need(Enum):
    """What a request asks of its key."""

    NOTHING = "nothing"
    KEY = "key"
    WHOLE = "whole"
    MANAGE = "manage"


_OPEN = frozenset(("/health", "/v1/health"))
_ORDERS = frozenset(("/models/load", "/models/unload", "/models/reload"))
_WHOLE = frozenset(("/metrics", "/models/sse"))
_LISTS = frozenset(("/models", "/v1/models"))
_READS = frozenset(("GET", "HEAD", "OPTIONS"))


def need_of(method: str, path: str, query: str) -> Need:
    """What a request asks of its key; `path` is decoded. The router overlooks slashes at its ends, so this does, too."""
    path = "/" + path.strip("/")
    if path in _OPEN:
        return Need.NOTHING
    changes = method not in _READS
    if path in _ORDERS or (
        changes and path.startswith(("/models", "/v1/models", "/slots/", "/lora-adapters"))
    ):
        return Need.MANAGE
    if path in _LISTS and _asks_reload(query):
        return Need.MANAGE
    return Need.WHOLE if path in _WHOLE else Need.KEY


def _asks_reload(query: str) -> bool:
    if "reload" not in query and "%" not in query:
        return False
    try:
        return "reload" in parse_qs(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
    except ValueError:
        return True


class Gate:
    """Decides by the policy that the supervisor sent last."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._keys = Keyring(())

    def follow(self, policy: Policy) -> None:
        self._policy = policy
        self._keys = Keyring(policy.keys)

    def admit(self, scope: dict[str, Any]) -> None:
        """Let a request in, and note in `scope` whose it is. Raises LlamadError: 401, 403, or 503 without a policy."""
        need = need_of(scope.get("method", "GET"), scope["path"], scope["query_string"].decode("latin-1"))
        if need is Need.NOTHING and scope["type"] == "websocket":
            need = Need.KEY  # an upgrade is a use of a model, whatever its path
        if need is Need.NOTHING:
            return
        if self._policy is None:
            raise UnavailableError(
                "cannot serve yet: the supervisor has not said who may come in",
                kind="supervisor-gone",
                retry_after_s=1,
            )
        if not self._policy.closed:
            scope[CLIENT] = address_of(scope)
            return
        key = self._keys.key_of(scope["headers"])
        _check(key, need)
        scope[KEY], scope[CLIENT] = key, key.client


def _check(key: Key, need: Need) -> None:
    if need is Need.MANAGE and not key.manage:
        raise RequestError(
            "cannot allow this: the key lacks the scope manage", kind="scope-missing", status=403
        )
    if need is Need.WHOLE and key.limited:
        raise RequestError(
            "cannot allow this: it tells of all models, and the key is limited to some",
            kind="scope-missing",
            status=403,
        )


def address_of(scope: dict[str, Any]) -> str:
    """Where a client without a key comes from, for taking turns.

    A connection from this machine is a reverse proxy's more often than not, and then the last address that it noted is
    the client's. Whoever is on this machine could write anything there, and wins nothing but turns.
    """
    peer = scope.get("client")
    host = str(peer[0]) if peer else ""
    if ":" in host:
        host = _client_of(host)
    if host in _LOCAL:
        host = _last_forwarded(scope["headers"]) or host or "local"
    return host


def _client_of(text: str) -> str:
    """One client has a whole network of IPv6; and an IPv4 address is the same by whatever socket it comes. "": none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    return str(ipaddress.ip_network((int(address), IPV6_CLIENT_BITS), strict=False))


def _last_forwarded(headers: Iterable[tuple[bytes, bytes]]) -> str:
    noted = b""
    for name, value in headers:
        if name.lower() == b"x-forwarded-for":
            noted = value
    return _client_of(noted.rpartition(b",")[2].strip().decode("latin-1"))
