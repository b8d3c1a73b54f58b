"""What the supervisor tells the front of its clients: who may come in, what browsers may do, how a body is changed.

The supervisor owns all of it. A worker gets a whole `llamad.wire.lease.Policy` after each hello and after each change,
and serves nobody before the first, so a key that was taken away opens nothing from the next request on. Keys travel as
SHA-256 digests: nothing that opens a door is in a worker's memory before a client brings it.
"""

from __future__ import annotations

from typing import Any

import msgspec

KEY_PREFIX = "key:"
"""A `client` that begins so is a key's name; any other is an address."""
CLIENT_HEADER = b"x-llamad-client"
"""On the admin socket: on whose behalf a worker asks. It takes rights away and gives none."""


class Key(msgspec.Struct, frozen=True, omit_defaults=True):
    """One key as a worker has to know it.

    `digest`: SHA-256 of the key, in hex. `client`: its public name, `key:NAME`. `manage`: it may change models.
    `limited`: it may use certain models only; which ones is the supervisor's business, as it alone resolves names.
    `metered`: the tokens of its answers have to be counted.
    """

    digest: str
    client: str
    manage: bool = False
    limited: bool = False
    metered: bool = False


class Cors(msgspec.Struct, frozen=True):
    """llama-server's `--cors-*` options. Origins may be `*` (any) and `localhost` (any port of this machine)."""

    origins: tuple[str, ...] = ("*",)
    methods: tuple[str, ...] = ("GET", "POST", "DELETE", "OPTIONS")
    headers: tuple[str, ...] = ("*",)
    credentials: bool = True


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """What becomes of a request's top-level JSON fields, in this order: `remove`, `default`, `force`."""

    default: dict[str, Any] = {}
    force: dict[str, Any] = {}
    remove: tuple[str, ...] = ()
