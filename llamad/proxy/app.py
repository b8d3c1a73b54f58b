"""The ASGI app of a worker: Falcon's router over the handlers, errors as JSON, one place that undoes what was taken.

Front (preflights, keys, body limit, cleanup)  ->  Falcon (marks, routes, errors)  ->  handlers  ->  relays  ->  upstreams
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import falcon
import falcon.asgi

from llamad import __version__
from llamad.errors import LlamadError, error_body
from llamad.proxy import handlers
from llamad.proxy.bodies import Bodies
from llamad.proxy.conversations import Lookup, Stream
from llamad.proxy.cors import Said
from llamad.proxy.door import Door
from llamad.proxy.heads import id_headers, request_id_of
from llamad.proxy.lease import LeaseClient
from llamad.proxy.lookup import CONTROL_PATH, INFERENCE_PATHS, TEXT_PATHS
from llamad.proxy.orphans import Orphans
from llamad.proxy.pool import Pool
from llamad.proxy.refusals import refusal
from llamad.proxy.relay import InstanceRelay, SupervisorRelay
from llamad.proxy.request import (
    BODIES_KEY,
    CLEANUP_KEY,
    POSITION_KEY,
    REQUEST_ID_KEY,
    Request,
    check_length,
    cut_short,
    declared_length,
    error_headers,
)
from llamad.proxy.silence import Silence
from llamad.proxy.websocket import WebSocketRelay
from llamad.wire.proxy import ProxySettings
from llamad.wire.stream import LOOKUP_PATH, STREAM_PATH

log = logging.getLogger(__name__)

SERVER = f"llamad/{__version__}"
_PATH_SHOWN_MAX = 200

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Front:
    """What Falcon cannot do: refuse a body before any of it is taken, and undo whatever way a request's call ends.

    `on_tls` is told when the certificate's files have changed.
    """

    def __init__(self, settings: ProxySettings) -> None:
        self._max_body_bytes = settings.max_body_bytes
        self._bodies = Bodies(settings.max_body_bytes)
        self._door = Door()
        leases = LeaseClient(settings.lease_socket, self._door.follow)
        self._falcon = _falcon_app(settings, leases, Pool(Silence(settings.timeout_s)), self._door)
        self._websockets = WebSocketRelay(settings, leases, self._door)

    def on_tls(self, reload: Callable[[], None]) -> None:
        """What to do when the certificate's files have changed."""
        self._door.on_tls = reload

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            to_origin_form(scope)
        if scope["type"] == "websocket":
            await self._websockets(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._falcon(scope, receive, send)
            return
        scope[REQUEST_ID_KEY] = request_id_of(_request_id_given(scope))
        if scope["method"] == "OPTIONS":
            await _send_plain(send, 200, b"", self._door.preflight_headers(scope), scope)
            return
        with ExitStack() as cleanup:
            scope[CLEANUP_KEY] = cleanup
            scope[BODIES_KEY] = self._bodies
            try:
                self._door.admit(scope)
                check_length(declared_length(scope) or 0, self._max_body_bytes)
                first = await receive()
                if first["type"] == "http.disconnect":
                    raise cut_short(0)
            except LlamadError as error:
                await _send_error(send, error, scope, self._door.browser_headers(scope))
                return
            await self._falcon(scope, _replay(first, receive), send)


def build(settings: ProxySettings) -> Front:
    """The app; it touches neither loop nor socket before its lifespan starts, so it can be built before a fork."""
    return Front(settings)


class _Marks:
    """What every answer carries."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def process_response(
        self, req: Request, resp: falcon.asgi.Response, resource: object, req_succeeded: bool
    ) -> None:
        for name, value in id_headers(req.path, req.id):
            resp.set_header(name, value)
        if resp.get_header("server") is None:
            resp.set_header("server", SERVER)
        if POSITION_KEY in req.scope:
            resp.set_header("x-queue-position", str(req.scope[POSITION_KEY]))
        for name, value in self._door.browser_headers(req.scope):
            resp.append_header(name, value)


class _Links:
    """The worker's connections, for as long as the app lives. The first hello says that this worker serves."""

    def __init__(self, leases: LeaseClient, pool: Pool, orphans: Orphans) -> None:
        self._leases = leases
        self._pool = pool
        self._orphans = orphans

    async def process_startup(self, scope: dict[str, Any], event: dict[str, Any]) -> None:
        await self._leases.start()

    async def process_shutdown(self, scope: dict[str, Any], event: dict[str, Any]) -> None:
        await self._orphans.settled()
        await self._leases.stop()
        self._pool.close()


def _falcon_app(
    settings: ProxySettings, leases: LeaseClient, pool: Pool, door: Door
) -> falcon.asgi.App[Any, Any]:
    orphans = Orphans()
    middleware: list[Any] = [_Marks(door), _Links(leases, pool, orphans)]
    app = falcon.asgi.App(request_type=Request, middleware=middleware)
    # An answer that an upstream sent without a type goes on without one.
    app.resp_options.default_media_type = None  # type: ignore[assignment]
    app.add_error_handler(Exception, _answer_unexpected)
    app.add_error_handler(falcon.HTTPError, _answer_falcon_error)
    app.add_error_handler(LlamadError, _answer_llamad_error)
    instances = InstanceRelay(leases, pool, orphans)
    _add_routes(app, settings, instances, SupervisorRelay(settings.admin_socket, pool))
    for path in (STREAM_PATH, STREAM_PATH + "/{id:path}"):
        app.add_route(path, Stream(instances, leases))
    app.add_route(LOOKUP_PATH, Lookup(leases, pool))
    return app


def _add_routes(
    app: falcon.asgi.App[Any, Any],
    settings: ProxySettings,
    instances: InstanceRelay,
    supervisor: SupervisorRelay,
) -> None:
    for path in INFERENCE_PATHS:
        generates = path not in TEXT_PATHS
        app.add_route(path, handlers.Inference(instances, settings.max_body_bytes, generates))
    for path in ("/props", "/metrics"):
        app.add_route(path, handlers.InstanceOrSupervisor(instances, supervisor))
    app.add_route(CONTROL_PATH, handlers.InstanceControl(instances))
    app.add_route("/slots", handlers.InstanceRead(instances))
    app.add_route("/lora-adapters", handlers.InstanceState(instances, settings.max_body_bytes))
    app.add_route("/slots/{slot}", handlers.InstanceAction(instances, settings.max_body_bytes))
    for path, handler in handlers.supervisor_routes(supervisor).items():
        app.add_route(path, handler)
    for path in ("/health", "/v1/health"):
        app.add_route(path, handlers.Health())
    app.add_route("/", handlers.Banner())


# ---- errors


async def _answer_llamad_error(
    req: Request, resp: falcon.asgi.Response, error: LlamadError, params: dict[str, Any]
) -> None:
    handlers.answer_json(resp, error.status, refusal(req.path, error.body()))
    for name, value in error_headers(error):
        resp.set_header(name, value)


async def _answer_falcon_error(
    req: Request, resp: falcon.asgi.Response, error: falcon.HTTPError, params: dict[str, Any]
) -> None:
    path = req.path[:_PATH_SHOWN_MAX]
    if error.status_code == 404:
        kind, message = "route-not-found", f"cannot find {path}: no such route"
    elif error.status_code == 405:
        kind, message = "method-not-allowed", f"cannot {req.method} {path}: the route does not take it"
    else:
        kind, message = "bad-request", f"cannot take the request: {error.description or error.title}"
    resp.set_headers(error.headers or {})
    body = error_body(kind, error.status_code, message)
    handlers.answer_json(resp, error.status_code, refusal(req.path, body))


async def _answer_unexpected(
    req: Request, resp: falcon.asgi.Response, error: Exception, params: dict[str, Any]
) -> None:
    log.error("cannot answer request %s", req.id, exc_info=error)
    body = error_body("internal", 500, f"cannot answer: internal error, request id {req.id}")
    handlers.answer_json(resp, 500, refusal(req.path, body))


async def _send_error(send: Send, error: LlamadError, scope: dict[str, Any], more: Said) -> None:
    body = refusal(scope["path"], error.body())
    headers = [("content-type", "application/json"), *error_headers(error), *more]
    await _send_plain(send, error.status, body, headers, scope)


async def _send_plain(send: Send, status: int, body: bytes, headers: Said, scope: dict[str, Any]) -> None:
    """An answer without Falcon."""
    said = [
        *headers,
        ("content-length", str(len(body))),
        ("server", SERVER),
        *id_headers(scope["path"], scope[REQUEST_ID_KEY]),
    ]
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in said]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


# ---- ASGI


_ABSOLUTE = re.compile(rb"https?://[^/?#%]+", re.IGNORECASE)


def to_origin_form(scope: dict[str, Any]) -> None:
    """RFC 9112, 3.2.2: a server takes a target in absolute form, too; what it is asked for is the path."""
    found = _ABSOLUTE.match(scope["raw_path"])
    if found is not None:
        start = found.end()
        scope["raw_path"] = scope["raw_path"][start:] or b"/"
        scope["path"] = scope["path"][start:] or "/"


def _request_id_given(scope: dict[str, Any]) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            return str(value, "latin-1")
    return None


def _replay(first: dict[str, Any], receive: Receive) -> Receive:
    """The first event again, after an empty one for Falcon, which takes one for itself and keeps it to the end.

    It has been received already because Falcon answers nothing at all when its first event is a disconnect.
    """
    waiting = [first, {"type": "http.request", "body": b"", "more_body": True}]

    async def replayed() -> dict[str, Any]:
        return waiting.pop() if waiting else await receive()

    return replayed
