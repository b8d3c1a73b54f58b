"""The routes that generate: OpenAI's chat and text completions, and llama.cpp's own completion."""

from __future__ import annotations

from falcon.asgi import Request, Response

from llamad.api.answer import Dialect
from llamad.api.chat import ChatDialect
from llamad.api.json_body import parse_object
from llamad.api.openai import CompletionDialect, CompletionRequest, parse_chat, parse_completion
from llamad.child.door import exchange_of
from llamad.child.generating import Generating, Prompts


class ChatCompletions(Generating):
    """`POST /v1/chat/completions`."""

    async def on_post(self, req: Request, resp: Response) -> None:
        service = self._service
        request = parse_chat(parse_object(exchange_of(req).body), service.defaults, service)
        turn = await service.turn(exchange_of(req).body, request.conversation, request.generation)
        prompts = [await service.prompt_tokens((turn.prompt,))]
        head, streaming = self._head("chatcmpl-", request.model), request.streaming
        service.thoughts.enter(exchange_of(req).cleanup, head.id, turn.generation.thought)
        plain = ChatDialect(head, streaming, turn.make_parser, turn.generation.n)
        dialect = await self._openai(head, plain, turn.generation, prompts)
        await self._answer(req, resp, dialect, turn.generation, prompts, streaming)


class _Completing(Generating):
    """What both kinds of completion share: their bodies."""

    async def on_post(self, req: Request, resp: Response) -> None:
        service = self._service
        request = parse_completion(parse_object(exchange_of(req).body), service.defaults, service)
        prompts = [await service.prompt_tokens(prompt) for prompt in request.prompts]
        dialect = await self._dialect(request, prompts)
        await self._answer(req, resp, dialect, request.generation, prompts, request.streaming)

    async def _dialect(self, request: CompletionRequest, prompts: Prompts) -> Dialect:
        raise NotImplementedError


class Completions(_Completing):
    """`POST /v1/completions`."""

    async def _dialect(self, request: CompletionRequest, prompts: Prompts) -> Dialect:
        head = self._head("cmpl-", request.model)
        dialect = CompletionDialect(head, request.streaming)
        return await self._openai(head, dialect, request.generation, prompts)


class NativeCompletions(_Completing):
    """`POST /completion`."""

    async def _dialect(self, request: CompletionRequest, prompts: Prompts) -> Dialect:
        head = self._head("", request.model)
        return await self._native(head, request.generation, prompts)
