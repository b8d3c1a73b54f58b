"""What all routes that generate share: the head of an answer, and its two ways out."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from functools import partial

import falcon
import msgspec
from falcon.asgi import Request, Response

from llamad.api.answer import Dialect, Head
from llamad.api.generation import Generation
from llamad.api.hosted import LEFT_OUT, header_text
from llamad.api.native import NativeDialect, PromptText
from llamad.api.openai import Streaming
from llamad.api.verbose import Verbose
from llamad.child.door import exchange_of
from llamad.child.events import EventStream
from llamad.child.service import Service
from llamad.clock import Clock

log = logging.getLogger(__name__)

# Types of tools that were left out and are remembered, so as to be told once.
TOLD_MAX = 64
SSE_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

Prompts = list[tuple[int, ...]]


class Generating:
    """The two ways out of a generation: as a whole or as a stream."""

    def __init__(self, service: Service, clock: Clock, ping_interval_s: int) -> None:
        self._service = service
        self._clock = clock
        self._ping_interval_s = ping_interval_s
        self._told: set[str] = set()

    def _head(self, id_prefix: str, model: str) -> Head:
        identity = self._service.identity
        return Head(
            id=id_prefix + secrets.token_hex(16),
            created=int(self._clock.wall()),
            model=model or identity.name,
            fingerprint=identity.build,
        )

    def _tell_left_out(self, resp: Response, kinds: Sequence[str]) -> None:
        """Say which tools of the request the model does not get: in the answer's head, and once in the log."""
        if not kinds:
            return
        resp.set_header(LEFT_OUT, header_text(kinds))
        new = [kind for kind in kinds if kind not in self._told]
        if new and len(self._told) < TOLD_MAX:
            self._told.update(new)
            log.warning("clients offer tools that only their vendor runs, left out: %s", header_text(new))

    async def _answer(
        self,
        req: Request,
        resp: Response,
        dialect: Dialect,
        generation: Generation,
        prompts: Prompts,
        streaming: Streaming,
    ) -> None:
        """Generate. The head goes out after the first output: until then a failure has a status of its own.

        A stream's head waits no longer than its first ping: an answer of which nothing comes at all is taken for dead.
        """
        exchange = exchange_of(req)
        work = self._service.begin(exchange.cleanup, generation, prompts)
        if streaming.wanted:
            ping_s = self._ping_s(streaming)
            await work.first(ping_s)
            resp.content_type = "text/event-stream"
            resp.set_headers(SSE_HEADERS)
            stream = EventStream(dialect, work, ping_s, exchange.send)
            exchange.cleanup.callback(stream.stop)
            resp.stream = stream
        else:
            answers = await work.whole()
            resp.content_type = falcon.MEDIA_JSON
            resp.data = msgspec.json.encode(dialect.whole(answers))

    async def _native(self, head: Head, generation: Generation, prompts: Prompts) -> NativeDialect:
        service = self._service
        texts = [
            PromptText(
                len(tokens), await service.aside(len(tokens), partial(service.engine.detokenize, tokens))
            )
            for tokens in prompts
        ]
        each = [text for text in texts for _ in range(generation.n)]
        return NativeDialect(head, each, generation)

    async def _openai(
        self, head: Head, dialect: Dialect, generation: Generation, prompts: Prompts
    ) -> Dialect:
        """The dialect as it is, or with llama.cpp's own inside, if that is wanted."""
        if not generation.extras.verbose:
            return dialect
        return Verbose(dialect, await self._native(head, generation, prompts))

    def _ping_s(self, streaming: Streaming) -> float | None:
        asked_s = streaming.ping_interval_s
        interval_s = self._ping_interval_s if asked_s is None else asked_s
        return interval_s if interval_s > 0 else None
