"""OpenAI's responses."""

from __future__ import annotations

from dataclasses import replace

from falcon.asgi import Request, Response

from llamad.api.json_body import parse_object
from llamad.api.responses import parse_responses
from llamad.api.responses_answer import ResponsesDialect
from llamad.child.door import exchange_of
from llamad.child.generating import Generating


class Responses(Generating):
    """`POST /v1/responses`."""

    async def on_post(self, req: Request, resp: Response) -> None:
        service = self._service
        request = parse_responses(parse_object(exchange_of(req).body), service.defaults, service)
        chat = request.chat
        self._tell_left_out(resp, request.left_out)
        turn = await service.turn(exchange_of(req).body, chat.conversation, chat.generation)
        tokens = await service.prompt_tokens((turn.prompt,))
        head = self._head("resp_", chat.model)
        service.thoughts.enter(exchange_of(req).cleanup, head.id, turn.generation.thought)
        dialect = ResponsesDialect(head, turn.make_parser, request.echo, self._clock.wall)
        # Whose thoughts were how many tokens shows in the pieces alone.
        generation = replace(turn.generation, stream=True)
        await self._answer(req, resp, dialect, generation, [tokens], chat.streaming)
