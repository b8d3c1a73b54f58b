"""The policy of a worker in use: one owner for what the supervisor said last, asked at each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llamad.proxy import cors
from llamad.proxy.gate import Gate
from llamad.wire.lease import Policy


class Door:
    """Follows each policy as a whole. `on_tls` is called when the certificate's files have changed since the last one."""

    def __init__(self) -> None:
        self._gate = Gate()
        self._policy = Policy()
        self._followed = False
        self.on_tls: Callable[[], None] = lambda: None

    def follow(self, policy: Policy) -> None:
        renewed = self._followed and policy.tls != self._policy.tls
        self._policy, self._followed = policy, True
        self._gate.follow(policy)
        if renewed:
            self.on_tls()

    def admit(self, scope: dict[str, Any]) -> None:
        """See `Gate.admit`."""
        self._gate.admit(scope)

    def allows_origin(self, scope: dict[str, Any]) -> bool:
        """Whether a page from where this WebSocket comes may open it."""
        return cors.allows_origin(self._policy.cors, scope["headers"])

    def browser_headers(self, scope: dict[str, Any]) -> cors.Said:
        """For every answer."""
        return cors.answer_headers(self._policy.cors, scope["headers"])

    def preflight_headers(self, scope: dict[str, Any]) -> cors.Said:
        """For OPTIONS, which needs neither key nor model: browsers ask so before they may send either."""
        return [
            *cors.answer_headers(self._policy.cors, scope["headers"]),
            *cors.preflight_headers(self._policy.cors, scope["headers"]),
        ]
