"""What each client may take: requests at once, requests per minute, tokens per minute. Pure.

Rates are token buckets that hold one minute's worth, so a client that was quiet may catch up at once. What an answer costs
is known at its end only, so the tokens' bucket may go below zero; the client then waits until it is above again. All
workers' requests pass here, so the limits hold for the front as a whole. Memory: one entry for each client with limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from llamad.core.state import Refusal

MINUTE_S = 60.0
CONCURRENT_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one client; 0: none."""

    max_concurrent: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0


class Bucket:
    """So many per minute; full at first."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._at = now

    def wait_s(self, least: float, now: float) -> float:
        """How long until there is `least`; 0.0: there is."""
        if not self.per_minute:
            return 0.0
        gained = max(0.0, now - self._at) * self.per_minute / MINUTE_S
        self._level, self._at = min(float(self.per_minute), self._level + gained), now
        return max(0.0, least - self._level) * MINUTE_S / self.per_minute

    def take(self, amount: float, now: float) -> None:
        """Take it, there or not."""
        self.wait_s(0.0, now)
        self._level -= amount


@dataclass(slots=True)
class _Use:
    quota: Quota
    requests: Bucket
    tokens: Bucket
    running: int = 0


class Quotas:
    """The use that all clients with limits make of them."""

    def __init__(self) -> None:
        self._uses: dict[str, _Use] = {}

    def configure(self, quotas: Mapping[str, Quota], now: float) -> None:
        """Follow new limits. Requests that run still count; a rate that has changed begins anew."""
        before, self._uses = self._uses, {}
        for client, quota in quotas.items():
            old = before.get(client)
            use = _Use(quota, Bucket(quota.requests_per_minute, now), Bucket(quota.tokens_per_minute, now))
            if old is not None:
                use.running = old.running
                if old.requests.per_minute == use.requests.per_minute:
                    use.requests = old.requests
                if old.tokens.per_minute == use.tokens.per_minute:
                    use.tokens = old.tokens
            self._uses[client] = use

    def begin(self, client: str, now: float, *, again: bool = False) -> Refusal | None:
        """Count a request in, or say why not. `again`: it is the second try of one that was counted."""
        use = self._uses.get(client)
        if use is None:
            return None
        refusal = None if again else _too_much(use, now)
        if refusal is None:
            use.running += 1
            if not again:
                use.requests.take(1.0, now)
        return refusal

    def end(self, client: str) -> None:
        use = self._uses.get(client)
        if use is not None and use.running:
            use.running -= 1

    def charge(self, client: str, tokens: int, now: float) -> None:
        """What an answer has cost."""
        use = self._uses.get(client)
        if use is not None and tokens:
            use.tokens.take(float(tokens), now)


def _too_much(use: _Use, now: float) -> Refusal | None:
    quota = use.quota
    if quota.max_concurrent and use.running >= quota.max_concurrent:
        return _refusal(
            "key-concurrency",
            f"{use.running} requests of this key run, the most is {quota.max_concurrent}",
            CONCURRENT_RETRY_S,
        )
    wait_s = use.requests.wait_s(1.0, now)
    if wait_s:
        return _refusal(
            "key-requests", f"this key has used its {quota.requests_per_minute} requests per minute", wait_s
        )
    # One whole token, or a bucket that is a hair above zero would let everything through.
    wait_s = use.tokens.wait_s(1.0, now)
    if wait_s:
        return _refusal(
            "key-tokens", f"this key has used its {quota.tokens_per_minute} tokens per minute", wait_s
        )
    return None


def _refusal(kind: str, numbers: str, wait_s: float) -> Refusal:
    return Refusal(
        kind, 429, f"cannot take the request: {numbers}", retry_after_s=math.ceil(wait_s * 10) / 10
    )
