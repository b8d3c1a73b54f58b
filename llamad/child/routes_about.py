"""The routes that tell of the instance: `/props`, `/slots`, `/v1/models`, `/metrics`."""

from __future__ import annotations

from falcon.asgi import Request, Response

from llamad.api.about import Endpoints, metrics, models, props, slot
from llamad.child.routes_model import answer_json
from llamad.child.service import Service
from llamad.clock import Clock
from llamad.errors import LlamadError, UnavailableError

PROMETHEUS = "text/plain; version=0.0.4"


class Props:
    """`GET /props`; `POST /props`, where it is open, takes what is sent and changes nothing, as in llama-server."""

    def __init__(self, service: Service, endpoints: Endpoints) -> None:
        self._service = service
        self._endpoints = endpoints

    async def on_get(self, req: Request, resp: Response) -> None:
        service = self._service
        identity = service.identity
        document = props(
            service.facts,
            service.defaults,
            alias=identity.name,
            path=identity.path,
            template=service.chat.template.source,
            tools_template=service.facts.tools_template,
            capabilities=service.chat.template.traits.capabilities(),
            build=identity.build,
            endpoints=self._endpoints,
            is_sleeping=service.engine.asleep,
        )
        answer_json(resp, document)

    async def on_post(self, req: Request, resp: Response) -> None:
        if not self._endpoints.props:
            raise _closed("props")
        answer_json(resp, {"success": True})


class Slots:
    """`GET /slots`: none while the model is asleep. With `fail_on_no_slot` in the query 503 if all are busy."""

    def __init__(self, service: Service, endpoints: Endpoints) -> None:
        self._service = service
        self._endpoints = endpoints

    async def on_get(self, req: Request, resp: Response) -> None:
        if not self._endpoints.slots:
            raise _closed("slots")
        views = self._service.engine.slots()
        if req.get_param("fail_on_no_slot") and all(view.request is not None for view in views):
            raise UnavailableError(f"cannot name a free slot: all {len(views)} are busy", kind="no-slot")
        answer_json(resp, [slot(view) for view in views])


class Models:
    """`GET /v1/models`: of an instance, the one that it serves."""

    def __init__(self, service: Service, clock: Clock) -> None:
        self._service = service
        self._created = int(clock.wall())

    async def on_get(self, req: Request, resp: Response) -> None:
        service = self._service
        answer_json(resp, models(service.facts, name=service.identity.name, created=self._created))


class Metrics:
    """`GET /metrics`, with the time of the process's start in a header, as of llama-server's."""

    def __init__(self, service: Service, endpoints: Endpoints, clock: Clock) -> None:
        self._service = service
        self._endpoints = endpoints
        self._started = str(int(clock.wall()))

    async def on_get(self, req: Request, resp: Response) -> None:
        if not self._endpoints.metrics:
            raise _closed("metrics")
        resp.content_type = PROMETHEUS
        resp.set_header("Process-Start-Time-Unix", self._started)
        resp.text = metrics(self._service.engine.stats())


def _closed(option: str) -> LlamadError:
    return LlamadError(
        f"cannot serve this route: the option {option} is off", kind="not-supported", status=501
    )
