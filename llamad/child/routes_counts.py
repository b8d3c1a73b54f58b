"""How many tokens a request of a chat dialect has the model read: nothing is generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from falcon.asgi import Request, Response

from llamad.api import messages, responses
from llamad.api.conversation import Conversation, parse_conversation
from llamad.api.fields import Fields
from llamad.api.json_body import parse_object
from llamad.child.door import exchange_of
from llamad.child.routes_model import answer_json
from llamad.child.service import Service


def count_routes(service: Service) -> dict[str, InputTokens]:
    """Each by its path. OpenAI has a name for such a document, which llama-server gives to chats' as well."""
    openai = {"object": "response.input_tokens"}
    chat = InputTokens(service, lambda body: parse_conversation(Fields(body)), openai)
    response = InputTokens(service, responses.parse_counted, openai)
    return {
        "/v1/chat/completions/input_tokens": chat,
        "/chat/completions/input_tokens": chat,
        "/v1/responses/input_tokens": response,
        "/responses/input_tokens": response,
        "/v1/messages/count_tokens": InputTokens(service, messages.parse_counted, {}),
    }


class InputTokens:
    """`parse`: a body to its conversation; `said`: what the answer says beside the count."""

    def __init__(
        self, service: Service, parse: Callable[[dict[str, Any]], Conversation], said: dict[str, Any]
    ) -> None:
        self._service = service
        self._parse = parse
        self._said = said

    async def on_post(self, req: Request, resp: Response) -> None:
        service = self._service
        body = exchange_of(req).body
        prompt = await service.prompt(body, self._parse(parse_object(body)))
        tokens = await service.prompt_tokens((prompt,), behind=True)
        answer_json(resp, {**self._said, "input_tokens": len(tokens)})
