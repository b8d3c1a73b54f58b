"""Embeddings: OpenAI's `/v1/embeddings`, and llama.cpp's own document of `/embedding` and `/embeddings`."""

from __future__ import annotations

import binascii
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from llamad.api.adapters import parse_adapters
from llamad.api.fields import Fields
from llamad.api.prompts import Prompt, are_several, parse_prompts
from llamad.api.sampling import Vocabulary
from llamad.api.unsupported import refuse_unsupported
from llamad.engine.vocabulary import Adapters, Embedded, ModelFacts
from llamad.errors import RequestError

INPUTS_MAX = 16_384
TOKENS_MAX = 1 << 20
"""Of all inputs of a request together."""
NUMBERS_MAX = 1 << 24
"""In one answer: 64 MiB of them, 350 MB as text."""
NORM_MAX = 1_000_000
_BYTES_PER_NUMBER = 4


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """A parsed body. `field`: where the inputs were, and `names`: what they are called. `native`: llama.cpp's document
    is wanted.

    `pooling`, `normalize`, `dimensions`, `adapters`: as in `EmbedRequest`.
    """

    prompts: tuple[Prompt, ...]
    field: str
    names: tuple[str, ...]
    model: str
    pooling: str
    normalize: int
    dimensions: int
    base64: bool
    native: bool
    adapters: Adapters | None = None


def parse_embeddings(
    document: dict[str, Any], vocabulary: Vocabulary, facts: ModelFacts, normalize: int, *, native: bool
) -> EmbeddingsRequest:
    """Raises RequestError that names the field. `normalize` is for requests that do not say."""
    fields = Fields(document)
    refuse_unsupported(fields)
    name = "input" if fields.raw("input") is not None or fields.raw("content") is None else "content"
    # As in llama-server: who calls it `content` knows llama.cpp's document.
    native = native or name == "content"
    prompts = parse_prompts(fields, vocabulary, name, INPUTS_MAX)
    several = are_several(fields.raw(name))
    lora = fields.raw("lora")
    encoding = fields.text("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise fields.wrong("encoding_format", '"float" or "base64"', encoding)
    pooling = _pooling(facts, native=native)
    # As in llama-server: what is not pooled is not normalised.
    plain = (pooling or facts.pooling) in ("none", "rank")
    return EmbeddingsRequest(
        prompts=prompts,
        field=name,
        names=tuple(f"{name}[{index}]" if several else name for index in range(len(prompts))),
        model=fields.text("model", ""),
        pooling=_pooling(facts, native=native),
        normalize=fields.integer("embd_normalize", -1 if plain else normalize, -1, NORM_MAX),
        dimensions=fields.integer("dimensions", 0, 1, facts.n_embd_out) if facts.pooling != "rank" else 0,
        base64=encoding == "base64",
        native=native,
        adapters=parse_adapters(lora, "lora") if lora else None,
    )


def _pooling(facts: ModelFacts, *, native: bool) -> str:
    """What to ask the engine for. Where nobody has said how, llama.cpp's document has a vector for each token."""
    if native:
        return "none" if facts.pooling == "" else ""
    if facts.pooling in ("none", "rank"):
        raise RequestError(
            f"cannot give one vector for an input with the pooling '{facts.pooling}': "
            + ("ask /v1/rerank" if facts.pooling == "rank" else "ask /embeddings, or set another pooling"),
            kind="unsupported-pooling",
        )
    return "mean" if facts.pooling == "" else ""


def check_tokens(n_tokens: int, param: str) -> None:
    """Raise RequestError where the inputs of one request are too much, all together."""
    if n_tokens > TOKENS_MAX:
        raise RequestError(
            f"cannot take more than {TOKENS_MAX} tokens in one request: '{param}' has {n_tokens} or more",
            kind="too-many-inputs",
            details={"param": param},
        )


def check_numbers(n_rows: int, width: int, param: str) -> None:
    """Raise RequestError where one answer would be too much."""
    if n_rows * width > NUMBERS_MAX:
        raise RequestError(
            f"cannot give {n_rows} vectors of {width} numbers in one answer: at most {NUMBERS_MAX // width}",
            kind="too-many-inputs",
            details={"param": param},
        )


def openai_parts(request: EmbeddingsRequest, answer: Embedded, model: str, n_tokens: int) -> Iterator[bytes]:
    """OpenAI's document in parts, a vector each; `usage` is last, so that whoever relays it finds it at the end."""
    yield b'{"object":"list","data":['
    for index, vector in enumerate(answer.vectors):
        item: dict[str, Any] = {"object": "embedding", "index": index}
        if request.base64:
            item |= {
                "embedding": binascii.b2a_base64(vector, newline=False).decode(),
                "encoding_format": "base64",
            }
        else:
            item["embedding"] = _numbers(vector)
        yield (b"," if index else b"") + msgspec.json.encode(item)
    tail = {"model": model, "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens}}
    yield b"]," + msgspec.json.encode(tail)[1:]


def native_parts(answer: Embedded) -> Iterator[bytes]:
    """llama.cpp's document in parts: of each input an array of vectors, with the pooling `none` one a token."""
    size = answer.width * _BYTES_PER_NUMBER
    yield b"["
    for index, vector in enumerate(answer.vectors):
        yield (b',{"index":%d,"embedding":[' if index else b'{"index":%d,"embedding":[') % index
        for begin in range(0, len(vector), size):
            yield (b"," if begin else b"") + msgspec.json.encode(_numbers(vector[begin : begin + size]))
        yield b"]}"
    yield b"]"


def _numbers(vector: bytes) -> list[float]:
    return array("f", vector).tolist()
