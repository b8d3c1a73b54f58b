"""The handlers behind the public routes: what to ask for, and whom."""

from __future__ import annotations

from typing import Any

import falcon.asgi
import msgspec

from llamad import __version__
from llamad.proxy.lookup import Wish, is_form, model_missing, wants_stream, wish_of_body, wish_of_query
from llamad.proxy.progress import Progress, style_of
from llamad.proxy.relay import InstanceRelay, SupervisorRelay
from llamad.proxy.request import Request
from llamad.units import MIB

# Orders are a name and a few flags.
ORDER_BYTES_MAX = MIB

Response = falcon.asgi.Response


class Inference:
    """`POST` of the inference routes: the model is named in the body, and loads when it has to.

    `generates`: it is work for a slot, and the model's request rules speak of this kind of body.
    """

    def __init__(self, instances: InstanceRelay, max_body_bytes: int, generates: bool) -> None:
        self._instances = instances
        self._max_body_bytes = max_body_bytes
        self._generates = generates

    async def on_post(self, req: Request, resp: Response) -> None:
        body = await req.read_body(self._max_body_bytes)
        content_type = req.content_type or ""
        wish = wish_of_body(content_type, body, req.query_string)
        wish = wish._replace(ruled=self._generates and not is_form(content_type), slot=self._generates)
        style = style_of(req.get_header("x-llamad-progress"))
        progress = Progress(style) if style is not None and wants_stream(content_type, body) else None
        await self._instances.send(req, resp, wish, body, progress)


class InstanceRead:
    """`GET` with `?model=`: an instance's own state, if it is resident."""

    def __init__(self, instances: InstanceRelay) -> None:
        self._instances = instances

    async def on_get(self, req: Request, resp: Response) -> None:
        await self._instances.send(req, resp, _wish_of_query(req), b"")

    on_head = on_get


class InstanceAction:
    """`POST` with `?model=`: an order to a resident instance, which is no reason to load it."""

    def __init__(self, instances: InstanceRelay, max_body_bytes: int) -> None:
        self._instances = instances
        self._max_body_bytes = max_body_bytes

    async def on_post(self, req: Request, resp: Response, **_: Any) -> None:
        body = await req.read_body(self._max_body_bytes)
        await self._instances.send(req, resp, _wish_of_query(req), body)


class InstanceControl:
    """`POST` with a model in the body: an order about what a resident instance does just now, which waits for no slot."""

    def __init__(self, instances: InstanceRelay) -> None:
        self._instances = instances

    async def on_post(self, req: Request, resp: Response) -> None:
        body = await req.read_body(ORDER_BYTES_MAX)
        wish = wish_of_body(req.content_type or "", body, req.query_string)
        wish = wish._replace(autoload=False, load=False, slot=False)
        await self._instances.send(req, resp, wish, body)


class InstanceState(InstanceRead, InstanceAction):
    """Both: what can be looked at and changed."""

    def __init__(self, instances: InstanceRelay, max_body_bytes: int) -> None:
        InstanceAction.__init__(self, instances, max_body_bytes)


class InstanceOrSupervisor:
    """`GET`: an instance's own with `?model=`, if it is resident, else the supervisor's of all."""

    def __init__(self, instances: InstanceRelay, supervisor: SupervisorRelay) -> None:
        self._instances = instances
        self._supervisor = supervisor

    async def on_get(self, req: Request, resp: Response) -> None:
        wish = wish_of_query(req.query_string)
        if wish is None:
            await self._supervisor.send(req, resp, b"")
        else:
            await self._instances.send(req, resp, wish, b"")

    on_head = on_get


class Supervisor:
    """Routes that are the admin socket's. `GET` and orders with a small body."""

    def __init__(self, supervisor: SupervisorRelay) -> None:
        self._supervisor = supervisor

    async def relay(self, req: Request, resp: Response, **_: Any) -> None:
        await self._supervisor.send(req, resp, await req.read_body(ORDER_BYTES_MAX))


class SupervisorReads(Supervisor):
    """What the supervisor tells."""

    on_get = on_head = Supervisor.relay


class SupervisorOrders(Supervisor):
    """What the supervisor is told."""

    on_post = Supervisor.relay


class SupervisorModels(Supervisor):
    """The list of models, downloads and deletions."""

    on_get = on_head = on_post = on_delete = Supervisor.relay


def supervisor_routes(supervisor: SupervisorRelay) -> dict[str, Supervisor]:
    """The admin socket's routes that are public; everything else of it is for operators only."""
    reads, orders = SupervisorReads(supervisor), SupervisorOrders(supervisor)
    return {
        "/models": SupervisorModels(supervisor),
        "/v1/models": reads,
        "/models/{id:path}": reads,
        "/v1/models/{id:path}": reads,
        "/models/load": orders,
        "/models/unload": orders,
        "/models/reload": orders,
        "/models/sse": reads,
    }


class Health:
    """Answered here and at once, whatever models and supervisor do."""

    _BODY = msgspec.json.encode({"status": "ok"})

    async def on_get(self, req: Request, resp: Response) -> None:
        answer_json(resp, 200, self._BODY)

    on_head = on_get


class Banner:
    """Who is listening here."""

    _BODY = msgspec.json.encode({"name": "llamad", "version": __version__})

    async def on_get(self, req: Request, resp: Response) -> None:
        answer_json(resp, 200, self._BODY)

    on_head = on_get


def _wish_of_query(req: Request) -> Wish:
    wish = wish_of_query(req.query_string)
    if wish is None:
        raise model_missing()
    return wish


def answer_json(resp: Response, status: int, body: bytes) -> None:
    resp.status = status
    resp.content_type = "application/json"
    resp.data = body
