"""llama.cpp's infill: answers are documents of its own, as completions' are."""

from __future__ import annotations

from falcon.asgi import Request, Response

from llamad.api.infill import infill_prompt, parse_infill, require_fim
from llamad.api.json_body import parse_object
from llamad.child.door import exchange_of
from llamad.child.generating import Generating
from llamad.child.service import Service
from llamad.clock import Clock


class Infill(Generating):
    """`POST /infill`. `suffix_first`: the order that the model was trained with (`spm-infill`)."""

    def __init__(self, service: Service, clock: Clock, ping_interval_s: int, suffix_first: bool) -> None:
        super().__init__(service, clock, ping_interval_s)
        self._suffix_first = suffix_first

    async def on_post(self, req: Request, resp: Response) -> None:
        service, fim = self._service, self._service.facts.fim
        require_fim(fim)
        request = parse_infill(parse_object(exchange_of(req).body), service.defaults, service)
        tokens = await service.aside(
            request.chars, lambda: infill_prompt(request, fim, service, self._suffix_first)
        )
        head = self._head("", request.model)
        dialect = await self._native(head, request.generation, [tokens])
        await self._answer(req, resp, dialect, request.generation, [tokens], request.streaming)
