"""Admin routes about models: list, one, load, unload, reload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from llamad.config.settings import ModelSpec
from llamad.core.actions import AnswerTicket
from llamad.core.events import LoadAsked, UnloadAsked
from llamad.core.view import ModelView
from llamad.daemon.admin import Exchange
from llamad.daemon.admin_routes import Route
from llamad.daemon.clients import Clients, shown_to
from llamad.daemon.documents import model_document, status_document
from llamad.daemon.driver import Driver
from llamad.daemon.loop import Loop
from llamad.daemon.memory import Memory
from llamad.daemon.monitor import Monitor
from llamad.daemon.reload import Changes, Reloader
from llamad.daemon.tickets import Tickets
from llamad.errors import LlamadError, NotFoundError, RequestError


class ModelRoutes:
    """What the public port's `/models` routes answer, too: proxy workers relay them here."""

    def __init__(
        self,
        *,
        loop: Loop,
        driver: Driver,
        monitor: Monitor,
        reloader: Reloader,
        tickets: Tickets,
        clients: Clients,
        memory: Memory,
    ) -> None:
        self._loop = loop
        self._driver = driver
        self._monitor = monitor
        self._reloader = reloader
        self._tickets = tickets
        self._clients = clients
        self._memory = memory

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/models", self.list_all),
            Route("GET", "/v1/models", self.list_all),
            Route("POST", "/models/load", self.load, changes=True),
            Route("POST", "/models/unload", self.unload, changes=True),
            Route("POST", "/models/reload", self.reload, changes=True),
            Route("POST", "/reload", self.reload, changes=True),
            Route("GET", "/models/", self.show),
            Route("GET", "/v1/models/", self.show),
        ]

    def documents(self) -> list[dict[str, Any]]:
        """Every model object, hidden ones too: operators see all."""
        used = self._memory.used()
        return [self._document(view, used) for view in self._driver.view().models]

    def document_of(self, name: str) -> dict[str, Any]:
        """One model object, by any of its names. Raises NotFoundError."""
        return self._document(self.view(name), self._memory.used())

    def documents_for(self, client: str) -> list[dict[str, Any]]:
        """What a client of the public port sees: what is listed, and of that what its key is for."""
        if not client:
            return self.documents()
        names = self._clients.limited_to(client)
        listed = [document for document in self.documents() if not self._unlisted(document["id"])]
        shown = [shown_to(names, self._veiled(client, document)) for document in listed]
        return [document for document in shown if document is not None]

    def _veiled(self, client: str, document: dict[str, Any]) -> dict[str, Any]:
        reason = self._clients.veiled(client, document["llamad"]["reason"], document["id"], self.spec_of)
        return {**document, "llamad": {**document["llamad"], "reason": reason}}

    def _unlisted(self, name: str) -> bool:
        spec = self._reloader.spec(name)
        return spec is not None and spec.unlisted

    def list_all(self, exchange: Exchange, _: str) -> None:
        """`?reload=1` reads the configuration first, as llama.cpp's router does."""
        if exchange.request.wants("reload"):
            exchange.require_rights()
            self._reloader.reload(lambda outcome: self._answer_list(exchange, outcome))
        else:
            self._answer_list(exchange, None)

    def show(self, exchange: Exchange, name: str) -> None:
        spec = self.spec_of(name)
        self._clients.check_model(exchange.client, name, spec)
        document = self._veiled(exchange.client, self.document_of(name))
        exchange.answer(shown_to(self._clients.limited_to(exchange.client), document))

    def load(self, exchange: Exchange, _: str) -> None:
        body = exchange.request.document()
        model = self._model_of(body, exchange.client)
        self._order(
            exchange, model, lambda ticket: LoadAsked(ticket, model), wait=_flag(body, "wait"), goal="loaded"
        )

    def unload(self, exchange: Exchange, _: str) -> None:
        body = exchange.request.document()
        model, force = self._model_of(body, exchange.client), _flag(body, "force")
        self._order(
            exchange,
            model,
            lambda ticket: UnloadAsked(ticket, model, force),
            wait=_flag(body, "wait"),
            goal="unloaded",
        )

    def reload(self, exchange: Exchange, _: str) -> None:
        self._reloader.reload(lambda outcome: self._answer_reload(exchange, outcome))

    # ---- parts

    def _order(self, exchange: Exchange, model: str, make_event: Any, *, wait: bool, goal: str) -> None:
        """Answer at the end state, or at once: then only a refusal that comes at once is heard."""
        view = self._find(model)
        already = view is not None and view.state == goal and not view.stopping and not view.draining
        ticket = self._tickets.order(
            make_event, lambda answer: self._answer_order(exchange, model, answer, already=already)
        )
        if wait:
            exchange.on_abandoned = lambda: self._tickets.drop(ticket)
        elif exchange.open:
            self._tickets.drop(ticket)
            self._answer_status(exchange, model, already=already)

    def _answer_order(self, exchange: Exchange, model: str, answer: AnswerTicket, *, already: bool) -> None:
        if answer.kind:
            message = self._clients.veiled(exchange.client, answer.message, model, self.spec_of)
            exchange.fail(LlamadError(message, kind=answer.kind, status=answer.status))
        else:
            self._answer_status(exchange, model, already=already)

    def _answer_status(self, exchange: Exchange, model: str, *, already: bool) -> None:
        """`already`: there was nothing to do."""
        view = self._find(model)
        spec = self._reloader.spec(view.name) if view else None
        status = status_document(view, spec) if view and spec else {"value": "unloaded"}
        exchange.answer({"success": True, "status": status, "already": already})

    def _answer_list(self, exchange: Exchange, outcome: Changes | LlamadError | None) -> None:
        if isinstance(outcome, LlamadError):
            exchange.fail(outcome)
        else:
            exchange.answer({"object": "list", "data": self.documents_for(exchange.client)})

    def _answer_reload(self, exchange: Exchange, outcome: Changes | LlamadError) -> None:
        if isinstance(outcome, LlamadError):
            exchange.fail(outcome)
        else:
            exchange.answer({"success": True, **asdict(outcome)})

    def _document(self, view: ModelView, used: Mapping[int, Mapping[str, int]]) -> dict[str, Any]:
        spec, instance = self._reloader.spec(view.name), self._monitor.instance(view.child)
        return model_document(view, spec, instance, now=self._loop.now(), used=used.get(view.child))

    def named(self, body: dict[str, Any], client: str) -> ModelView:
        """The model that a body names. Raises RequestError, NotFoundError."""
        return self.view(self._model_of(body, client))

    def view(self, name: str) -> ModelView:
        """By id or alias. Raises NotFoundError."""
        view = self._find(name)
        if view is None:
            raise NotFoundError(f"cannot find model {name!r}", kind="model-not-found")
        return view

    def _find(self, name: str) -> ModelView | None:
        resolved = self._driver.resolve(name) or name
        return next((view for view in self._driver.view().models if view.name == resolved), None)

    def spec_of(self, name: str) -> ModelSpec | None:
        """The model that any of its names stands for."""
        return self._reloader.spec(self._driver.resolve(name) or name)

    def _model_of(self, body: dict[str, Any], client: str) -> str:
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise RequestError("cannot tell which model is meant: the body has no 'model'")
        self._clients.check_order(client, model, self.spec_of(model))
        return model


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(f"cannot use {name!r}: true or false is wanted")
    return value
