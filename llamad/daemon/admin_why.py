"""Admin routes that explain: why a model is in its state, and what loading it would do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from llamad.core.view import ModelView
from llamad.daemon.admin import Exchange
from llamad.daemon.admin_models import ModelRoutes
from llamad.daemon.admin_routes import Route
from llamad.daemon.decisions import Decisions
from llamad.daemon.documents import failure_document, queue_document
from llamad.daemon.driver import Driver
from llamad.daemon.loop import Loop


class WhyRoutes:
    """Both only look."""

    def __init__(self, loop: Loop, driver: Driver, models: ModelRoutes, decisions: Decisions) -> None:
        self._loop = loop
        self._driver = driver
        self._models = models
        self._decisions = decisions

    def routes(self) -> list[Route]:
        return [Route("GET", "/why/", self.why), Route("GET", "/plan/", self.plan)]

    def why(self, exchange: Exchange, name: str) -> None:
        view = self._models.view(name)
        ours = self._models.document_of(view.name)["llamad"]
        exchange.answer(
            {
                "model": view.name,
                "state": view.state,
                "failed": view.failed,
                "reason": view.reason,
                "since_s": ours["since_s"],
                "decisions": self._decisions.documents(view.name),
                "failure": failure_document(view, self._loop.now()),
                "memory": ours["memory"],
                "need": ours["need"],
                "queue": self._queue(view),
            }
        )

    def plan(self, exchange: Exchange, name: str) -> None:
        exchange.answer(self._plan(self._models.view(name).name))

    def _plan(self, model: str) -> dict[str, Any]:
        return asdict(self._driver.plan(model))

    def _queue(self, view: ModelView) -> dict[str, Any] | None:
        """Where it stands, and what it waits for."""
        for position, entry in enumerate(self._driver.view().queue, start=1):
            if entry.model == view.name:
                waits_for = self._plan(view.name)
                return {**queue_document(entry, self._loop.now()), "position": position, "plan": waits_for}
        return None
