"""The clients of the public port as the supervisor knows them: their keys, what those may use, and how much of it.

Workers only tell keys apart; everything that depends on models, or has to hold over all workers, is decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from llamad.config.settings import ApiKey, ModelSpec, RequestRules, Settings
from llamad.core.quotas import Quota, Quotas
from llamad.errors import RequestError, UnavailableError
from llamad.wire import lease as wire
from llamad.wire.policy import KEY_PREFIX, Cors, Key, Rules

Document = dict[str, Any]

_QUOTED = re.compile("'([^']*)'")


class Clients:
    """Follows the settings. `client` is `key:NAME`, an address, or "" for operators on the admin socket."""

    def __init__(self, now: Callable[[], float]) -> None:
        # Until somebody says otherwise nobody comes in.
        self.policy = wire.Policy(closed=True)
        self._now = now
        self._keys: dict[str, ApiKey] = {}
        self._quotas = Quotas()

    def configure(self, settings: Settings) -> bool:
        """Take new settings; whether the workers have to be told."""
        self._keys = {KEY_PREFIX + key.name: key for key in settings.keys}
        self._quotas.configure({client: _quota(key) for client, key in self._keys.items()}, self._now())
        before, self.policy = self.policy, policy_of(settings)
        return self.policy != before

    # ---- rights

    def may_manage(self, client: str) -> bool:
        """Whether it may change models."""
        key = self._keys.get(client)
        return key.manage if key is not None else not client.startswith(KEY_PREFIX) and not self.policy.closed

    def limited_to(self, client: str) -> tuple[str, ...]:
        """The names of models that it may use; empty: all."""
        key = self._keys.get(client)
        return key.models if key is not None else ()

    def check_model(self, client: str, asked: str, spec: ModelSpec | None) -> None:
        """Raises RequestError (403) for a model that the client's key is not for.

        A key for a model's id is for all names of it; a key for an alias or a variant is for that one only. Whether a
        name exists at all is not told to a key that is not for it.
        """
        if self._is_not_for(client, asked, spec):
            raise RequestError(
                f"cannot allow model {asked!r}: the key is not for it", kind="model-not-allowed", status=403
            )

    def check_order(self, client: str, asked: str, spec: ModelSpec | None) -> None:
        """As `check_model`, for what changes the whole process: a key for one name of it is not for that."""
        names = self.limited_to(client)
        if names and (spec is None or spec.name not in names):
            raise RequestError(
                f"cannot change model {asked!r}: the key is not for it", kind="model-not-allowed", status=403
            )

    def veiled(self, client: str, text: str, own: str, spec_of: Callable[[str], ModelSpec | None]) -> str:
        """What the scheduler says about the model `own`, without the names of others that are not for this client.

        It names models in quotes. `client` "": an operator, who sees all.
        """
        ours = spec_of(own)

        def shown(quoted: re.Match[str]) -> str:
            name, spec = quoted[1], spec_of(quoted[1])
            if not client or spec is None or (ours is not None and spec.name == ours.name):
                return quoted[0]
            hidden = spec.unlisted or self._is_not_for(client, name, spec)
            return "another model" if hidden else quoted[0]

        return _QUOTED.sub(shown, text)

    def _is_not_for(self, client: str, asked: str, spec: ModelSpec | None) -> bool:
        names = self.limited_to(client)
        return bool(names) and asked not in names and (spec is None or spec.name not in names)

    # ---- use

    def counts(self, client: str) -> bool:
        """Whether each of its requests has to be counted."""
        key = self._keys.get(client)
        return key is not None and _quota(key) != Quota()

    def begin(self, message: wire.Ask, spec: ModelSpec | None) -> None:
        """Count a request in. Raises LlamadError: 401 for a key that is no more, 403, 429."""
        client = message.client
        if client.startswith(KEY_PREFIX) and client not in self._keys:
            raise RequestError("cannot serve this key: it is not known here", kind="key-unknown", status=401)
        self.check_model(client, message.model, spec)
        if not message.load:
            return
        refusal = self._quotas.begin(client, self._now(), again=bool(message.avoid))
        if refusal is not None:
            raise UnavailableError(
                refusal.message,
                kind=refusal.kind,
                status=refusal.status,
                retry_after_s=refusal.retry_after_s,
            )

    def end(self, client: str, tokens: int = 0) -> None:
        """One that was counted in is over."""
        self._quotas.end(client)
        self.charge(client, tokens)

    def charge(self, client: str, tokens: int) -> None:
        self._quotas.charge(client, tokens, self._now())


def policy_of(settings: Settings) -> wire.Policy:
    """What workers have to know."""
    return wire.Policy(
        closed=bool(settings.keys or settings.api_key or settings.api_key_file),
        keys=tuple(_wire_key(key) for key in settings.keys),
        cors=Cors(
            settings.cors_origins, settings.cors_methods, settings.cors_headers, settings.cors_credentials
        ),
        tls=settings.tls,
    )


def _wire_key(key: ApiKey) -> Key:
    return Key(
        digest=key.digest,
        client=KEY_PREFIX + key.name,
        manage=key.manage,
        limited=bool(key.models),
        metered=bool(key.tokens_per_minute),
    )


def _quota(key: ApiKey) -> Quota:
    return Quota(key.max_concurrent, key.requests_per_minute, key.tokens_per_minute)


def wire_rules(rules: RequestRules) -> Rules | None:
    """Rules as a worker carries them out; None where there are none."""
    if not rules:
        return None
    return Rules(_values(rules.default), _values(rules.force), rules.remove)


def _values(texts: Mapping[str, str]) -> dict[str, Any]:
    return {name: msgspec.json.decode(text) for name, text in texts.items()}


def shown_to(names: Iterable[str], document: Document) -> Document | None:
    """A model object as a key that is for `names` only may see it: under a name that it may use, or not at all.

    Variants are among the aliases.
    """
    allowed = set(names)
    if not allowed or document["id"] in allowed:
        return document
    usable = [name for name in document["aliases"] if name in allowed]
    if not usable:
        return None
    ours = {**document["llamad"], "variants": {}}
    return {**document, "id": usable[0], "aliases": usable[1:], "llamad": ours}
