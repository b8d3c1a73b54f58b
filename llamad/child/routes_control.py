"""`POST /v1/chat/completions/control`: change an answer while it comes."""

from __future__ import annotations

from falcon.asgi import Request, Response

from llamad.api.fields import Fields
from llamad.api.json_body import parse_object
from llamad.child.door import exchange_of
from llamad.child.routes_model import answer_json
from llamad.child.thoughts import Thoughts

END_THOUGHT = "reasoning_end"


class Control:
    """llama-server's documents: `success`, and why not."""

    def __init__(self, thoughts: Thoughts) -> None:
        self._thoughts = thoughts

    async def on_post(self, req: Request, resp: Response) -> None:
        fields = Fields(parse_object(exchange_of(req).body))
        id = fields.text("id", "")
        if not id:
            raise fields.wrong("id", "the id of an answer", fields.raw("id"))
        action = fields.text("action", "")
        if action != END_THOUGHT:
            raise fields.wrong("action", f"'{END_THOUGHT}'", fields.raw("action"))
        message = self._thoughts.end(id)
        answer_json(resp, {"success": not message} | ({"message": message} if message else {}))
