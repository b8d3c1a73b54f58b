"""Anthropic's messages."""

from __future__ import annotations

from dataclasses import replace

from falcon.asgi import Request, Response

from llamad.api.extras import Extras
from llamad.api.json_body import parse_object
from llamad.api.messages import parse_messages
from llamad.api.messages_answer import MessagesDialect
from llamad.child.door import exchange_of
from llamad.child.generating import Generating


class Messages(Generating):
    """`POST /v1/messages`."""

    async def on_post(self, req: Request, resp: Response) -> None:
        service = self._service
        request = parse_messages(parse_object(exchange_of(req).body), service.defaults, service)
        chat = request.chat
        self._tell_left_out(resp, request.left_out)
        turn = await service.turn(exchange_of(req).body, chat.conversation, chat.generation)
        tokens = await service.prompt_tokens((turn.prompt,))
        head = self._head("msg_", chat.model)
        service.thoughts.enter(exchange_of(req).cleanup, head.id, turn.generation.thought)
        dialect = MessagesDialect(
            head,
            turn.make_parser,
            chat.generation.max_tokens,
            request.stops,
            request.shows_thoughts,
        )
        generation = replace(turn.generation, extras=Extras(timings_per_token=chat.streaming.wanted))
        await self._answer(req, resp, dialect, generation, [tokens], chat.streaming)
