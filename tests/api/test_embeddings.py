"""Bodies of the embedding routes, and their answers."""

from __future__ import annotations

import base64
import json
from array import array
from dataclasses import replace
from typing import Any

import pytest

from llamad.api.embeddings import (
    INPUTS_MAX,
    NUMBERS_MAX,
    TOKENS_MAX,
    EmbeddingsRequest,
    check_numbers,
    check_tokens,
    native_parts,
    openai_parts,
    parse_embeddings,
)
from llamad.engine.vocabulary import Embedded, ModelFacts
from llamad.errors import RequestError
from tests.api.vocabulary_for_tests import ByteVocabulary

FACTS = ModelFacts(
    "bert", "", 1, 1, 4096, 4096, 4096, 257, 8, 4, None, "", "", False, n_embd_out=8, pooling="mean"
)


def parse(
    body: dict[str, Any], *, native: bool = False, normalize: int = 2, **facts: Any
) -> EmbeddingsRequest:
    return parse_embeddings(body, ByteVocabulary(), replace(FACTS, **facts), normalize, native=native)


@pytest.mark.parametrize(
    ("value", "prompts", "names"),
    [
        ("hello", (("hello",),), ("input",)),
        (["a", "b"], (("a",), ("b",)), ("input[0]", "input[1]")),
        (["a"], (("a",),), ("input[0]",)),
        ([5, 6], ((5, 6),), ("input",)),
        ([[5, 6], [7]], ((5, 6), (7,)), ("input[0]", "input[1]")),
        (["a", [7]], (("a",), (7,)), ("input[0]", "input[1]")),
        ("", (("",),), ("input",)),
        ({"prompt_string": "a"}, (("a",),), ("input",)),
        ({"prompt_string": [5, "a"], "multimodal_data": []}, ((5, "a"),), ("input",)),
        (
            {"content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]},
            (("a b",),),
            ("input",),
        ),
        (["a", {"prompt_string": "b"}], (("a",), ("b",)), ("input[0]", "input[1]")),
    ],
)
def test_inputs(value: Any, prompts: tuple[Any, ...], names: tuple[str, ...]) -> None:
    request = parse({"input": value, "model": "m"})
    assert (request.prompts, request.names) == (prompts, names)
    assert (request.model, request.normalize, request.dimensions) == ("m", 2, 0)
    assert not request.base64
    assert not request.native


def test_who_says_content_gets_llama_cpps_document() -> None:
    request = parse({"content": ["a"]}, pooling="none")
    assert (request.native, request.names) == (True, ("content[0]",))
    assert parse({"input": "a", "content": "b"}).prompts == (("a",),)
    assert parse({"input": "a"}, native=True).native


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": {"text": "x"}}, "input"),
        ({"input": ["a", 5.5]}, "input[1]"),
        ({"input": ["a", None]}, "input[1]"),
        ({"input": [[5], [999]]}, "input[1][0]"),
        ({"input": [[]]}, "input[0]"),
        ({"input": [-1]}, "input[0]"),
        ({"input": {"prompt_string": 5}}, "input.prompt_string"),
        ({"input": {"prompt_string": "x", "multimodal_data": ["AAAA"]}}, "input.multimodal_data"),
        ({"input": [{"content": "x"}]}, "input[0].content"),
        ({"input": {"content": []}}, "input.content"),
        ({"input": {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}}, "input.content[0].type"),
        ({"input": "x", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "x", "encoding_format": 5}, "encoding_format"),
        ({"input": "x", "dimensions": 0}, "dimensions"),
        ({"input": "x", "dimensions": 9}, "dimensions"),
        ({"input": "x", "dimensions": "8"}, "dimensions"),
        ({"input": "x", "embd_normalize": -2}, "embd_normalize"),
        ({"input": "x", "embd_normalize": 1.5}, "embd_normalize"),
        ({"input": ["x"] * (INPUTS_MAX + 1)}, "input"),
        ({"input": "x", "keep_alive": "5m"}, "keep_alive"),
        ({"input": "x", "ttl": 0}, "ttl"),
        ({"input": "x", "lora": 5}, "lora"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse(body)
    assert caught.value.status == 400
    assert caught.value.details["param"] == param
    assert caught.value.message.startswith("cannot ")


def test_fields() -> None:
    request = parse({"input": "x", "encoding_format": "base64", "dimensions": 8, "embd_normalize": -1})
    assert (request.base64, request.dimensions, request.normalize) == (True, 8, -1)
    assert parse({"input": "x", "user": "me"}, normalize=0).normalize == 0
    assert request.adapters is None
    assert parse({"input": "x", "lora": [{"id": 1, "scale": 0.5}]}).adapters == ((1, 0.5),)


@pytest.mark.parametrize(
    ("pooling", "native", "asked"),
    [
        ("mean", False, ""),
        ("mean", True, ""),
        ("none", True, ""),
        ("rank", True, ""),
        ("", True, "none"),
        ("", False, "mean"),
    ],
)
def test_where_nobody_has_said_how(pooling: str, native: bool, asked: str) -> None:
    assert parse({"input": "x"}, native=native, pooling=pooling).pooling == asked


def test_scores_and_vectors_of_tokens_are_left_as_they_are() -> None:
    request = parse({"input": "x", "dimensions": 500}, native=True, pooling="rank")
    assert (request.normalize, request.dimensions) == (-1, 0)
    assert parse({"input": "x"}, native=True, pooling="").normalize == -1
    assert parse({"input": "x", "embd_normalize": 2}, native=True, pooling="none").normalize == 2


@pytest.mark.parametrize("pooling", ["none", "rank"])
def test_there_is_no_one_vector(pooling: str) -> None:
    with pytest.raises(RequestError, match=f"'{pooling}'") as caught:
        parse({"input": "x"}, pooling=pooling)
    assert caught.value.kind == "unsupported-pooling"


def test_amounts_are_bounded() -> None:
    check_tokens(TOKENS_MAX, "input")
    check_numbers(NUMBERS_MAX // 8, 8, "input")
    with pytest.raises(RequestError, match=str(TOKENS_MAX + 1)) as caught:
        check_tokens(TOKENS_MAX + 1, "documents")
    assert caught.value.details["param"] == "documents"
    with pytest.raises(RequestError, match=str(NUMBERS_MAX // 8)):
        check_numbers(NUMBERS_MAX // 8 + 1, 8, "input")


ANSWER = Embedded(1, (array("f", [0.5, -1.0]).tobytes(), array("f", [2.0, 3.0]).tobytes()), 2)


def test_openais_document() -> None:
    document = b"".join(openai_parts(parse({"input": ["a", "b"]}), ANSWER, "m", 7))
    assert json.loads(document) == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.5, -1.0]},
            {"object": "embedding", "index": 1, "embedding": [2.0, 3.0]},
        ],
        "model": "m",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    # The proxy counts tokens by the end of an answer.
    assert b'"total_tokens":7' in document[-64:]


def test_base64_is_little_endian_float32() -> None:
    request = parse({"input": ["a", "b"], "encoding_format": "base64"})
    document = json.loads(b"".join(openai_parts(request, ANSWER, "m", 7)))
    data = document["data"][1]
    assert array("f", base64.b64decode(data["embedding"])).tolist() == [2.0, 3.0]
    assert data["encoding_format"] == "base64"


def test_llama_cpps_document_has_an_array_of_vectors_for_each() -> None:
    each = Embedded(1, (array("f", [1, 2, 3, 4]).tobytes(), array("f", [5, 6]).tobytes()), 2)
    assert json.loads(b"".join(native_parts(each))) == [
        {"index": 0, "embedding": [[1, 2], [3, 4]]},
        {"index": 1, "embedding": [[5, 6]]},
    ]
