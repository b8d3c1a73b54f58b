"""`/lora-adapters`: which adapters there are, and which of them are in force for requests that do not say."""

from __future__ import annotations

from typing import Protocol

from falcon.asgi import Request, Response

from llamad.api.adapters import adapter_list, parse_adapters
from llamad.api.json_body import parse_array
from llamad.child.door import exchange_of
from llamad.child.routes_model import answer_json
from llamad.engine.vocabulary import Adapters, ModelFacts


class Adapted(Protocol):
    """What the route needs of the model, which may be asleep meanwhile."""

    @property
    def facts(self) -> ModelFacts: ...

    @property
    def default_adapters(self) -> Adapters: ...

    def adapt(self, adapters: Adapters) -> None: ...


class LoraAdapters:
    """`GET` and `POST /lora-adapters`. A change is for requests that come after it; those that run keep theirs."""

    def __init__(self, model: Adapted) -> None:
        self._model = model

    async def on_get(self, req: Request, resp: Response) -> None:
        answer_json(resp, adapter_list(self._model.facts.adapters, self._model.default_adapters))

    async def on_post(self, req: Request, resp: Response) -> None:
        self._model.adapt(parse_adapters(parse_array(exchange_of(req).body), "adapters"))
        answer_json(resp, {"success": True})
