"""The routes about the model's text: tokens and templates; and health."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import falcon
import msgspec
from falcon.asgi import Request, Response

from llamad.api.conversation import parse_conversation
from llamad.api.fields import Fields
from llamad.api.json_body import parse_object
from llamad.api.native import parse_detokenize, parse_tokenize, token_piece
from llamad.api.prompts import mixed_tokens, prompt_chars
from llamad.child.door import exchange_of
from llamad.child.service import Service


def answer_json(resp: Response, document: Any) -> None:
    """A plain answer."""
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(document)


class Tokenize:
    """`POST /tokenize`. `piece` gives the bytes of a token, none for control tokens."""

    def __init__(self, service: Service, piece: Callable[[int], bytes]) -> None:
        self._service = service
        self._piece = piece

    async def on_post(self, req: Request, resp: Response) -> None:
        service = self._service
        request = parse_tokenize(parse_object(exchange_of(req).body))

        def tokenize() -> list[Any]:
            tokens = mixed_tokens(request.content, service, request.add_special, request.parse_special)
            return [self._with_piece(token) for token in tokens] if request.with_pieces else tokens

        tokens = await service.aside(
            prompt_chars(request.content) + len(request.content), tokenize, behind=True
        )
        answer_json(resp, {"tokens": tokens})

    def _with_piece(self, token: int) -> dict[str, Any]:
        return token_piece(token, self._piece(token) or self._service.engine.detokenize([token]).encode())


class Detokenize:
    """`POST /detokenize`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def on_post(self, req: Request, resp: Response) -> None:
        service = self._service
        tokens = parse_detokenize(parse_object(exchange_of(req).body), service.n_vocab)
        content = await service.aside(len(tokens), lambda: service.engine.detokenize(tokens), behind=True)
        answer_json(resp, {"content": content})


class ApplyTemplate:
    """`POST /apply-template`: the prompt that a chat request with these messages would become."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def on_post(self, req: Request, resp: Response) -> None:
        body = exchange_of(req).body
        conversation = parse_conversation(Fields(parse_object(body)))
        answer_json(resp, {"prompt": await self._service.prompt(body, conversation)})


class Health:
    """`GET /health`: an instance that listens has its model loaded, or put to sleep by its parent."""

    async def on_get(self, req: Request, resp: Response) -> None:
        answer_json(resp, {"status": "ok"})
