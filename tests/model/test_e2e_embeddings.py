"""Embeddings and reranking over the public port: leases, keys, limits, idle clocks, books; and the official client."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import numpy as np
import openai
import pytest
import requests

from tests.conftest import wait_until
from tests.harness import Llamad
from tests.model.generated import N_EMBD, generated

pytestmark = pytest.mark.model

LONG = {"model": "bert", "input": ["it was hot " * 300] * 1000}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llamad]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("sk-all name=all\nsk-poor name=poor tpm=50\nsk-rank name=rank models=rerank\n")
    keys.chmod(0o600)
    presets = f"""version = 1
[bert]
model = {generated("bert")}
alias = text-embedding-3-small
unload-idle-seconds = 2

[rerank]
model = {generated("rerank")}

[both]
model = {generated("tiny")}
c = 512
embeddings = true
"""
    options = ("--api-key-file", str(keys), "--models-memory-margin", "64")
    with Llamad(presets, *options) as daemon:
        yield daemon


def client(daemon: Llamad, key: str = "sk-all") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{daemon.url}/v1", api_key=key, max_retries=0, timeout=60)


def post(daemon: Llamad, path: str, body: dict[str, object], key: str = "sk-all") -> requests.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return requests.post(daemon.url + path, json=body, headers=headers, timeout=60)


def test_the_official_client_in_both_encodings(daemon: Llamad) -> None:
    texts = ["the quick brown fox", "it was a hot day"]
    with client(daemon) as official:
        # Without a word the client asks for base64 and reads it.
        read = official.embeddings.create(model="text-embedding-3-small", input=texts)
        plain = official.embeddings.create(model="bert", input=texts, encoding_format="float", dimensions=8)
        with pytest.raises(openai.BadRequestError) as caught:
            official.embeddings.create(model="bert", input=texts, dimensions=N_EMBD + 1)
    vectors = np.array([each.embedding for each in read.data])
    assert vectors.shape == (2, N_EMBD)
    short = vectors[:, :8] / np.linalg.norm(vectors[:, :8], axis=1, keepdims=True)
    assert np.array([each.embedding for each in plain.data]) == pytest.approx(short, abs=1e-5)
    assert read.model == "text-embedding-3-small"
    assert read.usage.prompt_tokens == read.usage.total_tokens > 4
    assert caught.value.body["param"] == "dimensions"


def test_one_model_chats_and_embeds_for_the_official_client(daemon: Llamad) -> None:
    with client(daemon) as official:
        vector = official.embeddings.create(model="both", input="the fox").data[0].embedding
        chat = official.chat.completions.create(
            model="both", messages=[{"role": "user", "content": "the"}], max_tokens=3
        )
    assert len(vector) == N_EMBD
    assert chat.usage
    assert chat.usage.completion_tokens > 0


def test_documents_are_ranked(daemon: Llamad) -> None:
    body = {"model": "rerank", "query": "hot", "documents": ["a day", "it was hot"], "top_n": 1}
    for path in ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking"):
        document = post(daemon, path, body, "sk-rank").json()
        assert len(document["results"]) == 1
        assert document["model"] == "rerank"


def test_keys_open_these_routes_as_they_open_others(daemon: Llamad) -> None:
    body = {"model": "bert", "input": "x"}
    for path in ("/v1/embeddings", "/embedding", "/embeddings", "/v1/rerank"):
        assert post(daemon, path, body, key="").status_code == 401
        assert post(daemon, path, body, key="sk-rank").status_code == 403


def test_tokens_per_minute_count_those_of_inputs(daemon: Llamad) -> None:
    body = {"model": "bert", "input": ["it was hot"] * 30}
    assert post(daemon, "/v1/embeddings", body, "sk-poor").status_code == 200
    more = {"model": "bert", "input": "x"}
    answers = []

    def refused() -> bool:
        answers.append(post(daemon, "/v1/embeddings", more, "sk-poor"))
        return answers[-1].status_code == 429

    wait_until(refused)
    assert answers[-1].json()["error"]["kind"] == "key-tokens"


def test_a_request_for_vectors_keeps_its_model_and_its_end_lets_it_go(daemon: Llamad) -> None:
    post(daemon, "/v1/embeddings", {"model": "bert", "input": "x"})
    with raw_post(daemon, LONG):
        wait_until(lambda: daemon.model("bert")["llamad"]["leases"] == 1, within_s=30)
        assert daemon.state("bert") == "loaded"
    # The client has left: its work ends, and with it the lease; then the idle clock runs.
    wait_until(lambda: daemon.model("bert")["llamad"]["leases"] == 0, within_s=30)
    assert daemon.model("bert")["llamad"]["last_used_s"] is not None
    daemon.wait_state("bert", "unloaded", within_s=30)


def test_books_hold_what_it_takes(daemon: Llamad) -> None:
    assert post(daemon, "/v1/embeddings", {"model": "bert", "input": ["it " * 1000] * 4}).status_code == 200
    told = daemon.model("bert")["llamad"]
    held = told["memory"]["host"]["held_bytes"]
    # What was measured before it was loaded is what the process says of itself.
    assert told["need"]["maximum"]["host"] == pytest.approx(held, rel=0.05)
    assert held > 30 << 20


def test_the_list_has_them(daemon: Llamad) -> None:
    with client(daemon) as official:
        assert {model.id for model in official.models.list()} == {"bert", "rerank", "both"}


def raw_post(daemon: Llamad, body: dict[str, object]) -> socket.socket:
    """A POST whose answer nobody reads; closing it is leaving."""
    data = requests.Request("POST", daemon.url + "/v1/embeddings", json=body).prepare()
    host, port = daemon.url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-all\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data.body)}\r\n\r\n"
    )
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(head.encode() + data.body)
    return connection
