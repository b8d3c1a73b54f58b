"""The instance's Falcon application: which route is answered by whom, and errors in the shape of the route."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import falcon
import falcon.asgi
import msgspec
from falcon.asgi import Request, Response

from llamad.api.about import Endpoints
from llamad.child.conversations import Recordings
from llamad.child.instance_spec import EMBD_NORMALIZE
from llamad.child.routes_about import Metrics, Models, Props, Slots
from llamad.child.routes_control import Control
from llamad.child.routes_counts import count_routes
from llamad.child.routes_embed import Embeddings, Rerank
from llamad.child.routes_generate import ChatCompletions, Completions, NativeCompletions
from llamad.child.routes_infill import Infill
from llamad.child.routes_lora import LoraAdapters
from llamad.child.routes_messages import Messages
from llamad.child.routes_model import ApplyTemplate, Detokenize, Health, Tokenize
from llamad.child.routes_responses import Responses
from llamad.child.routes_slots import SlotActions
from llamad.child.routes_stream import StreamReplay, StreamsLookup
from llamad.child.service import Service
from llamad.child.slot_files import SlotFiles
from llamad.clock import Clock
from llamad.errors import LlamadError, body_for, error_body
from llamad.wire.stream import LOOKUP_PATH, STREAM_PATH

log = logging.getLogger(__name__)


_HTTP_REASONS = {
    404: ("not-found", "there is no such route"),
    405: ("method-not-allowed", "the route has other methods"),
}


def build_app(
    service: Service,
    piece: Callable[[int], bytes],
    clock: Clock,
    recordings: Recordings,
    ping_interval_s: int,
    endpoints: Endpoints = Endpoints(),  # noqa: B008 - frozen
    embd_normalize: int = EMBD_NORMALIZE,
    suffix_first: bool = False,
    slot_files: SlotFiles | None = None,
) -> falcon.asgi.App[Request, Response]:
    """All routes of one instance. `piece`: see Tokenize; `suffix_first`: see Infill.

    `ping_interval_s` and `embd_normalize` are for requests that do not say.
    """
    app: falcon.asgi.App[Request, Response] = falcon.asgi.App()
    chat = ChatCompletions(service, clock, ping_interval_s)
    completions = Completions(service, clock, ping_interval_s)
    native, health = NativeCompletions(service, clock, ping_interval_s), Health()
    responses = Responses(service, clock, ping_interval_s)
    models = Models(service, clock)
    native_embeddings = Embeddings(service, embd_normalize, native=True)
    routes: dict[str, Any] = {
        "/v1/chat/completions": chat,
        "/chat/completions": chat,
        "/v1/chat/completions/control": Control(service.thoughts),
        "/v1/completions": completions,
        "/completion": native,
        "/completions": native,
        "/v1/messages": Messages(service, clock, ping_interval_s),
        "/infill": Infill(service, clock, ping_interval_s, suffix_first),
        "/v1/responses": responses,
        "/responses": responses,
        "/v1/embeddings": Embeddings(service, embd_normalize, native=False),
        "/embeddings": native_embeddings,
        "/embedding": native_embeddings,
        **dict.fromkeys(("/v1/rerank", "/rerank", "/v1/reranking", "/reranking"), Rerank(service)),
        "/tokenize": Tokenize(service, piece),
        "/detokenize": Detokenize(service),
        "/apply-template": ApplyTemplate(service),
        "/lora-adapters": LoraAdapters(service.engine),
        "/props": Props(service, endpoints),
        "/slots": Slots(service, endpoints),
        "/slots/{slot}": SlotActions(service, slot_files, clock),
        "/models": models,
        "/v1/models": models,
        "/metrics": Metrics(service, endpoints, clock),
        STREAM_PATH: StreamReplay(recordings),
        LOOKUP_PATH: StreamsLookup(recordings),
        "/health": health,
        "/v1/health": health,
    }
    routes |= count_routes(service)
    for path, resource in routes.items():
        app.add_route(path, resource)
    app.add_error_handler(Exception, _bug)
    app.add_error_handler(falcon.HTTPError, _http_error)
    app.add_error_handler(LlamadError, _error)
    return app


async def _error(req: Request, resp: Response, error: LlamadError, params: dict[str, Any]) -> None:
    _answer(req, resp, error.status, error.body())
    if error.retry_after_s is not None:
        resp.set_header("Retry-After", str(max(1, round(error.retry_after_s))))


async def _http_error(req: Request, resp: Response, error: falcon.HTTPError, params: dict[str, Any]) -> None:
    """Falcon's own refusals."""
    status = error.status_code
    kind, reason = _HTTP_REASONS.get(status, ("bad-request", error.title or ""))
    resp.set_headers(error.headers or {})
    _answer(req, resp, status, error_body(kind, status, f"cannot {req.method} {req.path[:200]}: {reason}"))


async def _bug(req: Request, resp: Response, error: Exception, params: dict[str, Any]) -> None:
    log.error("cannot answer %s %s: a bug", req.method, req.path[:200], exc_info=error)
    message = f"cannot answer: an internal error ({type(error).__name__})"
    _answer(req, resp, 500, error_body("internal", 500, message))


def _answer(req: Request, resp: Response, status: int, body: dict[str, Any]) -> None:
    resp.status = status
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(body_for(req.path, body))
