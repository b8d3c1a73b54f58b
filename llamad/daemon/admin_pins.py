"""Admin routes that keep models: pin, unpin, hold."""

from __future__ import annotations

from typing import Any

from llamad.core.events import PinAsked
from llamad.daemon.admin import Exchange
from llamad.daemon.admin_models import ModelRoutes
from llamad.daemon.admin_routes import Route
from llamad.daemon.pins import Pins
from llamad.daemon.tickets import Tickets
from llamad.errors import RequestError

HOLD_S_MAX = 366 * 86400.0


class PinRoutes:
    """An order is kept first and carried out then, so that one that was answered outlives the daemon."""

    def __init__(self, models: ModelRoutes, pins: Pins, tickets: Tickets) -> None:
        self._models = models
        self._pins = pins
        self._tickets = tickets

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/models/pin", self.pin, changes=True),
            Route("POST", "/models/unpin", self.unpin, changes=True),
            Route("POST", "/models/hold", self.hold, changes=True),
        ]

    def pin(self, exchange: Exchange, _: str) -> None:
        model = self._model(exchange)
        self._pins.pin(model)
        self._tickets.order(lambda ticket: PinAsked(ticket, model, pinned=True), self._heard)
        self._answer(exchange, model)

    def unpin(self, exchange: Exchange, _: str) -> None:
        """Ends a hold, too."""
        model = self._model(exchange)
        spec = self._models.spec_of(model)
        self._pins.unpin(model, configured=spec is not None and spec.pinned)
        self._tickets.order(lambda ticket: PinAsked(ticket, model, pinned=False), self._heard)
        self._answer(exchange, model)

    def hold(self, exchange: Exchange, _: str) -> None:
        """`for_s` seconds from now, in place of an earlier hold."""
        model, for_s = self._model(exchange), _seconds(exchange.request.document())
        self._pins.hold(model, for_s)
        self._tickets.order(lambda ticket: PinAsked(ticket, model, pinned=True, for_s=for_s), self._heard)
        self._answer(exchange, model)

    def _model(self, exchange: Exchange) -> str:
        """The id of a model that exists."""
        return self._models.named(exchange.request.document(), exchange.client).name

    def _heard(self, answer: object) -> None:
        """It is done by now: the answer is made of what then is."""

    def _answer(self, exchange: Exchange, model: str) -> None:
        document = self._models.document_of(model)
        ours = document["llamad"]
        kept = {"pinned": ours["pinned"], "held_for_s": ours["held_for_s"]}
        exchange.answer({"success": True, "status": document["status"], **kept})


def _seconds(body: dict[str, Any]) -> float:
    value = body.get("for_s")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= HOLD_S_MAX:
        raise RequestError(f"cannot hold it: for_s is wanted, in seconds, at most {HOLD_S_MAX:.0f}")
    return float(value)
