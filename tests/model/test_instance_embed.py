"""Embeddings and reranking over a real instance's port."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import requests

from tests.conftest import wait_until
from tests.engine.live_embed import by_llama_cpp, cosine
from tests.model.generated import BERT_POSITIONS, N_EMBD, generated
from tests.model.test_instance_serving import Instance, last_stats, loaded, open_post
from tests.model.test_instance_sleep import sleep, wake

pytestmark = pytest.mark.model

TEXTS = ["the quick brown fox", "it was a hot day", "one", "they had some of it, but not all of that"]


@pytest.fixture(scope="module")
def bert() -> Iterator[Instance]:
    with loaded(generated("bert"), {}) as instance:
        yield instance


@pytest.fixture(scope="module")
def rerank() -> Iterator[Instance]:
    with loaded(generated("rerank"), {}) as instance:
        yield instance


@pytest.fixture(scope="module")
def decoder() -> Iterator[Instance]:
    with loaded(generated("tiny"), {"ctx-size": 512, "embeddings": True}) as instance:
        yield instance


def tokens_of(instance: Instance, texts: Sequence[str]) -> list[list[int]]:
    return [instance.post("/tokenize", {"content": text, "add_special": True})["tokens"] for text in texts]


def vectors(document: dict[str, Any]) -> np.ndarray:
    return np.array([each["embedding"] for each in document["data"]])


# ---- vectors


def test_openais_embeddings(bert: Instance) -> None:
    document = bert.post("/v1/embeddings", {"input": TEXTS, "model": "alias:x"})
    found = vectors(document)
    inputs = tokens_of(bert, TEXTS)
    wanted = np.concatenate(by_llama_cpp(generated("bert"), inputs, "mean"))
    assert cosine(found, wanted) > 0.9999
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)
    assert [each["index"] for each in document["data"]] == [0, 1, 2, 3]
    assert document["usage"] == {
        "prompt_tokens": sum(map(len, inputs)),
        "total_tokens": sum(map(len, inputs)),
    }
    assert document["model"] == "alias:x"


def test_all_ways_to_write_an_input_mean_the_same(bert: Instance) -> None:
    tokens = tokens_of(bert, TEXTS[:2])
    ways = [TEXTS[0], [TEXTS[0]], tokens[0], [tokens[0]]]
    found = [vectors(bert.post("/v1/embeddings", {"input": way}))[0] for way in ways]
    for vector in found[1:]:
        assert cosine(vector, found[0]) > 0.99999
    both = vectors(bert.post("/v1/embeddings", {"input": tokens}))
    assert both.shape == (2, N_EMBD)


def test_base64_says_what_numbers_say(bert: Instance) -> None:
    body = {"input": TEXTS}
    data = bert.post("/v1/embeddings", body | {"encoding_format": "base64"})["data"]
    read = np.array([np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in data])
    assert read == pytest.approx(vectors(bert.post("/v1/embeddings", body)), abs=1e-6)


def test_fewer_dimensions_are_the_first_ones_made_to_length_one(bert: Instance) -> None:
    full = vectors(bert.post("/v1/embeddings", {"input": TEXTS[0]}))[0][:10]
    short = vectors(bert.post("/v1/embeddings", {"input": TEXTS[0], "dimensions": 10}))[0]
    assert short == pytest.approx(full / np.linalg.norm(full), abs=1e-5)


def test_norms(bert: Instance) -> None:
    raw = vectors(bert.post("/v1/embeddings", {"input": TEXTS[0], "embd_normalize": -1}))[0]
    assert abs(np.linalg.norm(raw) - 1) > 0.1
    taxicab = vectors(bert.post("/v1/embeddings", {"input": TEXTS[0], "embd_normalize": 1}))[0]
    assert np.abs(taxicab).sum() == pytest.approx(1, abs=1e-4)
    assert cosine(raw, taxicab) > 0.9999


def test_llama_cpps_document(bert: Instance) -> None:
    wanted = vectors(bert.post("/v1/embeddings", {"input": TEXTS[:2]}))
    for path, body in (
        ("/embedding", {"content": TEXTS[:2]}),
        ("/embeddings", {"input": TEXTS[:2]}),
        ("/v1/embeddings", {"content": TEXTS[:2]}),
    ):
        document = bert.post(path, body)
        assert [each["index"] for each in document] == [0, 1]
        assert np.array([each["embedding"] for each in document])[:, 0] == pytest.approx(wanted, abs=1e-5)


def test_thousands_of_inputs_in_one_request(bert: Instance) -> None:
    texts = [f"{TEXTS[number % 4]} {number}" for number in range(2500)]
    document = bert.post("/v1/embeddings", {"input": texts})
    found = vectors(document)
    assert found.shape == (2500, N_EMBD)
    some = [0, 1, 777, 2499]
    wanted = vectors(bert.post("/v1/embeddings", {"input": [texts[index] for index in some]}))
    assert cosine(found[some], wanted) > 0.9999


def test_an_input_longer_than_the_physical_batch(bert: Instance) -> None:
    text = "it " * (BERT_POSITIONS - 2)
    assert bert.post("/v1/embeddings", {"input": text})["usage"]["prompt_tokens"] == BERT_POSITIONS
    error = bert.post("/v1/embeddings", {"input": ["it", text + "it"]}, status=400)["error"]
    assert (error["kind"], error["param"]) == ("exceed-context-size", "input[1]")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (BERT_POSITIONS + 1, BERT_POSITIONS)
    error = bert.post("/v1/embeddings", {"input": "x" * 1_000_000}, status=400)["error"]
    assert error["kind"] == "exceed-context-size"


def test_a_million_tokens_are_enough(bert: Instance) -> None:
    error = bert.post("/v1/embeddings", {"input": [[40] * 1000] * 1100}, status=400)["error"]
    assert (error["kind"], error["param"]) == ("too-many-inputs", "input")
    error = bert.post("/v1/embeddings", {"input": ["x"] * 20_000}, status=400)["error"]
    assert (error["kind"], error["param"]) == ("too-many-inputs", "input")


@pytest.mark.parametrize("text", ["", "   ", "\x00", "日本"])
def test_texts_of_nearly_nothing(bert: Instance, text: str) -> None:
    document = bert.post("/v1/embeddings", {"input": text})
    assert document["usage"]["prompt_tokens"] >= 2
    assert np.isfinite(vectors(document)).all()


def test_a_model_that_embeds_only_does_not_generate(bert: Instance) -> None:
    assert bert.ready["n_ctx"] == BERT_POSITIONS
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/completion", {"prompt": "hi", "stream": True}),
    ):
        error = bert.post(path, body, status=501)["error"]
        assert (error["kind"], error["type"]) == ("not-supported", "not_supported_error")


def test_a_caller_who_leaves_is_not_worked_for(bert: Instance) -> None:
    body = {"input": ["it was hot " * 300] * 1000}
    # What was told last may be of a test before this one.
    wait_until(lambda: last_stats(bert)["slots_busy"] == 0, within_s=30)
    done = last_stats(bert)["requests_cancelled"]
    with open_post(bert, "/v1/embeddings", body):
        wait_until(lambda: last_stats(bert)["slots_busy"] == 1, within_s=30)
    wait_until(lambda: last_stats(bert)["requests_cancelled"] == done + 1, within_s=30)
    wait_until(lambda: last_stats(bert)["slots_busy"] == 0, within_s=30)


def test_it_sleeps_and_wakes(bert: Instance) -> None:
    body = {"input": TEXTS}
    before = vectors(bert.post("/v1/embeddings", body))
    sleep(bert)
    error = bert.post("/v1/embeddings", body, status=503)["error"]
    assert error["kind"] == "sleeping"
    wake(bert)
    assert cosine(vectors(bert.post("/v1/embeddings", body)), before) > 0.9999


# ---- a model that generates, too


def test_one_model_generates_and_embeds(decoder: Instance) -> None:
    body = {"prompt": "the quick", "temperature": 0, "n_predict": 8}
    before = decoder.post("/completion", body)["content"]
    document = decoder.post("/v1/embeddings", {"input": TEXTS})
    assert decoder.post("/completion", body)["content"] == before
    wanted = by_llama_cpp(generated("tiny"), tokens_of(decoder, TEXTS), "mean")
    assert cosine(vectors(document), np.concatenate(wanted)) > 0.9999


def test_where_nobody_has_said_how_llama_cpps_document_has_every_token(decoder: Instance) -> None:
    (tokens,) = tokens_of(decoder, TEXTS[:1])
    (document,) = decoder.post("/embedding", {"content": TEXTS[0]})
    (wanted,) = by_llama_cpp(generated("tiny"), [tokens], "none")
    # As in llama-server these are not normalised.
    assert np.array(document["embedding"]) == pytest.approx(wanted, rel=0.01, abs=0.05)


def test_an_empty_input_is_named(decoder: Instance) -> None:
    error = decoder.post("/v1/embeddings", {"input": ["the", ""]}, status=400)["error"]
    assert (error["kind"], error["param"]) == ("empty-prompt", "input[1]")


def test_without_the_option_a_model_that_generates_does_not_embed() -> None:
    with loaded(generated("tiny"), {"ctx-size": 256}) as instance:
        for path in ("/v1/embeddings", "/embedding", "/v1/rerank"):
            error = instance.post(path, {"input": "x", "query": "q", "documents": ["d"]}, status=501)["error"]
            assert error["kind"] == "not-supported"
            assert "= true" in error["message"]


def test_a_decoder_made_for_it_embeds_by_itself() -> None:
    with loaded(generated("last"), {"ctx-size": 256}) as instance:
        found = vectors(instance.post("/v1/embeddings", {"input": TEXTS}))
        inputs = tokens_of(instance, TEXTS)
    assert cosine(found, np.concatenate(by_llama_cpp(generated("last"), inputs, "last"))) > 0.9999


def test_pooling_none_has_no_one_vector() -> None:
    with loaded(generated("bert"), {"pooling": "none"}) as instance:
        error = instance.post("/v1/embeddings", {"input": "x"}, status=400)["error"]
        assert error["kind"] == "unsupported-pooling"
        (document,) = instance.post("/embeddings", {"content": "it was"})
        assert np.array(document["embedding"]).shape == (len(tokens_of(instance, ["it was"])[0]), N_EMBD)


# ---- scores


def test_documents_are_ranked_by_llama_cpps_scores(rerank: Instance) -> None:
    query = "was it hot"
    body = {"query": query, "documents": [*TEXTS, {"text": TEXTS[0]}], "top_n": 3, "return_documents": True}
    document = rerank.post("/v1/rerank", body)
    results = document["results"]
    assert len(results) == 3
    scores = [each["relevance_score"] for each in results]
    assert scores == sorted(scores, reverse=True)
    cls, sep = 2, 3
    plain = [rerank.post("/tokenize", {"content": text})["tokens"] for text in (query, *TEXTS)]
    inputs = [[cls, *plain[0], sep, *tokens] for tokens in plain[1:]]
    wanted = np.concatenate(by_llama_cpp(generated("rerank"), inputs, "rank"))[:, 0]
    for each in results:
        assert each["relevance_score"] == pytest.approx(wanted[each["index"] % 4], abs=0.02)
        assert each["document"]["text"] == TEXTS[each["index"] % 4]
    assert document["usage"]["prompt_tokens"] == sum(map(len, inputs)) + len(inputs[0])


@pytest.mark.parametrize("path", ["/rerank", "/reranking", "/v1/reranking"])
def test_other_names_and_teis_dialect(rerank: Instance, path: str) -> None:
    found = rerank.post(path, {"query": "hot", "texts": TEXTS, "return_text": True})
    assert [each["text"] for each in found] == [TEXTS[each["index"]] for each in found]
    assert len(found) == len(TEXTS)


def test_a_document_that_is_too_long_is_named(rerank: Instance) -> None:
    body = {"query": "q", "documents": ["it", "it " * BERT_POSITIONS]}
    error = rerank.post("/v1/rerank", body, status=400)["error"]
    assert (error["kind"], error["param"]) == ("exceed-context-size", "documents[1]")
    assert error["n_ctx"] == BERT_POSITIONS


def test_a_ranker_has_scores_and_no_vectors(rerank: Instance) -> None:
    assert rerank.post("/v1/embeddings", {"input": "x"}, status=400)["error"]["kind"] == "unsupported-pooling"
    (document,) = rerank.post("/embedding", {"content": "x"})
    assert np.array(document["embedding"]).shape == (1, 1)


def test_an_embedder_does_not_rank(bert: Instance) -> None:
    error = bert.post("/v1/rerank", {"query": "q", "documents": ["d"]}, status=501)["error"]
    assert "reranking" in error["message"]


def test_bodies_that_are_none(bert: Instance) -> None:
    for body in (b"", b"{", b"[1]", b'{"input": [[["x"]]]}'):
        answer = requests.post(f"{bert.url}/v1/embeddings", data=body, headers=bert.headers, timeout=30)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith("cannot ")
