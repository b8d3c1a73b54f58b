"""The routes that make vectors and scores: embeddings in OpenAI's and llama.cpp's way, and reranking."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial

import falcon
from falcon.asgi import Request, Response

from llamad.api.embeddings import (
    EmbeddingsRequest,
    check_numbers,
    check_tokens,
    native_parts,
    openai_parts,
    parse_embeddings,
)
from llamad.api.json_body import parse_object
from llamad.api.prompts import Prompt, prompt_chars, prompt_tokens
from llamad.api.rerank import pair_tokens, parse_rerank, rerank_document
from llamad.child.door import Exchange, exchange_of
from llamad.child.routes_model import answer_json
from llamad.child.service import TOKEN_CHARS_MAX, Service
from llamad.engine.vocabulary import Embedded, EmbedRequest
from llamad.errors import LlamadError, RequestError

# Texts are tokenised, and vectors written, in slices of about this size, so that others get their turn between.
SLICE_CHARS = 32 * 1024
SLICE_BYTES = 256 * 1024
# What is smaller is written at once.
INLINE_BYTES = 16 * 1024

_WISHES = ("pooling", "normalize", "dimensions", "adapters")

Tokens = list[tuple[int, ...]]


class Embeddings:
    """`POST /v1/embeddings`, or llama.cpp's own. `normalize`: for requests that do not say."""

    def __init__(self, service: Service, normalize: int, *, native: bool) -> None:
        self._service = service
        self._normalize = normalize
        self._native = native

    async def on_post(self, req: Request, resp: Response) -> None:
        service, facts, body = self._service, self._service.facts, exchange_of(req).body
        if facts.pooling is None:
            raise unable(req.path, "embeddings")
        request = await service.aside(
            len(body),
            lambda: parse_embeddings(
                parse_object(body), service, facts, self._normalize, native=self._native
            ),
        )
        inputs, n_tokens = await self._inputs(request)
        every = (request.pooling or facts.pooling) == "none"
        check_numbers(n_tokens if every else len(inputs), facts.n_embd_out, request.field)
        answer = await embed(service, exchange_of(req), inputs, request)
        model = request.model or service.identity.name
        parts = native_parts(answer) if request.native else openai_parts(request, answer, model, n_tokens)
        resp.content_type = falcon.MEDIA_JSON
        if sum(map(len, answer.vectors)) <= INLINE_BYTES:
            resp.data = b"".join(parts)
        else:
            resp.stream = _written(service, parts)

    async def _inputs(self, request: EmbeddingsRequest) -> tuple[Tokens, int]:
        service, prompts = self._service, request.prompts
        sizes = [prompt_chars(prompt) for prompt in prompts]
        check_chars(service, sizes, request.names)
        inputs: Tokens = []
        n_tokens = 0
        for begin, end in slices(sizes):
            some = partial(_tokens, service, prompts[begin:end])
            inputs += await service.aside(sum(sizes[begin:end]), some)
            n_tokens += sum(map(len, inputs[begin:]))
            check_tokens(n_tokens, request.field)
        check_inputs(service, inputs, request.names)
        return inputs, n_tokens


class Rerank:
    """`POST /v1/rerank` and its other names."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def on_post(self, req: Request, resp: Response) -> None:
        service, facts, body = self._service, self._service.facts, exchange_of(req).body
        if facts.pooling != "rank":
            raise unable(req.path, "reranking")
        request = await service.aside(len(body), lambda: parse_rerank(parse_object(body)))
        sizes = [len(each) for each in request.documents]
        names = [f"{request.field}[{index}]" for index in range(len(sizes))]
        check_chars(service, [len(request.query), *sizes], ["query", *names])
        inputs: Tokens = []
        n_tokens = 0
        for begin, end in slices(sizes, beside=len(request.query)):
            some = partial(pair_tokens, facts.pair, request.query, request.documents[begin:end], service)
            inputs += await service.aside(sum(sizes[begin:end]) + len(request.query), some)
            n_tokens += sum(map(len, inputs[begin:]))
            check_tokens(n_tokens, request.field)
        check_inputs(service, inputs, names)
        answer = await embed(service, exchange_of(req), inputs)
        answer_json(resp, rerank_document(request, answer, request.model or service.identity.name, n_tokens))


def unable(path: str, what: str) -> LlamadError:
    """llama-server's 501, with the option to set."""
    return LlamadError(
        f"cannot serve {path}: this model is loaded without {what}; set '{what} = true' for it",
        kind="not-supported",
        status=501,
    )


def slices(sizes: Sequence[int], beside: int = 0) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive items of about SLICE_CHARS together, at least one item each."""
    begin = total = 0
    for index, size in enumerate(sizes):
        if index > begin and total + size > SLICE_CHARS:
            yield begin, index
            begin, total = index, 0
        total += size + beside + 1
    if begin < len(sizes):
        yield begin, len(sizes)


def check_chars(service: Service, sizes: Sequence[int], names: Sequence[str]) -> None:
    """Raise RequestError for a text that cannot fit, without the seconds that tokenising it would take."""
    for size, name in zip(sizes, names, strict=True):
        if size > service.facts.n_ctx_slot * TOKEN_CHARS_MAX:
            raise RequestError(
                f"cannot fit '{name}' of {size} characters: it exceeds the available context size of {service.facts.n_ctx_slot} tokens",
                kind="exceed-context-size",
                details={"param": name, "n_prompt_chars": size, "n_ctx": service.facts.n_ctx_slot},
            )


def check_inputs(service: Service, inputs: Tokens, names: Sequence[str]) -> None:
    """Raise RequestError for an input that is empty or too long, by its name."""
    for tokens, name in zip(inputs, names, strict=True):
        if not tokens:
            raise RequestError(
                f"cannot embed '{name}': it has no tokens", kind="empty-prompt", details={"param": name}
            )
        if len(tokens) > service.facts.n_ctx_slot:
            raise RequestError(
                f"cannot fit '{name}' of {len(tokens)} tokens: it exceeds the available context size of {service.facts.n_ctx_slot} tokens",
                kind="exceed-context-size",
                details={"param": name, "n_prompt_tokens": len(tokens), "n_ctx": service.facts.n_ctx_slot},
            )


async def embed(
    service: Service, exchange: Exchange, inputs: Tokens, request: EmbeddingsRequest | None = None
) -> Embedded:
    """The vectors of these inputs, as the request wants them; without one, scores."""
    work = service.embed_work(exchange.cleanup)
    fields = {} if request is None else {name: getattr(request, name) for name in _WISHES}
    return await work.run(lambda number: EmbedRequest(number, tuple(inputs), **fields))


def _tokens(service: Service, prompts: Sequence[Prompt]) -> Tokens:
    inputs: Tokens = []
    for prompt in prompts:
        try:
            inputs.append(prompt_tokens(prompt, service))
        except RequestError:
            # Empty, which `check_inputs` tells by its name.
            inputs.append(())
    return inputs


async def _written(service: Service, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The parts in slices, each written on the worker: a number takes 0.1 us."""
    while data := await service.on_worker(partial(_slice, parts)):
        yield data


def _slice(parts: Iterator[bytes]) -> bytes:
    buffer = bytearray()
    for part in parts:
        buffer += part
        if len(buffer) >= SLICE_BYTES:
            break
    return bytes(buffer)
