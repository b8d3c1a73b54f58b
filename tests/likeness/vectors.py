"""Asks a llama-server for vectors and scores, and writes down all that it answers, for the tests that have none.

    python -m tests.likeness.vectors [--llama-server PATH]

`scripts/bench/versus.py --help` says how to get one. The generated models are the same everywhere, so numbers can be
compared, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import requests

from tests.likeness.peer import peer
from tests.model.generated import generated

RECORDED = Path(__file__).with_name("vectors.json")
TEXTS = ["the quick brown fox", "it was a hot day", "one"]
TOKENS = [40, 41, 42, 43, 44]
DIGITS = 5


class Server(NamedTuple):
    """A model and how it is loaded. `only_theirs`: what llamad does by itself."""

    model: str
    options: dict[str, Any]
    only_theirs: dict[str, Any]


class Case(NamedTuple):
    server: str
    path: str
    body: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.server} {self.path} {json.dumps(self.body)}"


_WHOLE = {"ubatch-size": 1024, "batch-size": 1024}
SERVERS = {
    "bert": Server("bert", {"ctx-size": 1024}, {"embeddings": True, **_WHOLE}),
    "bert-cls": Server("bert-cls", {"ctx-size": 1024, "embd-normalize": -1}, {"embeddings": True, **_WHOLE}),
    "rerank": Server("rerank", {"ctx-size": 1024}, {"reranking": True, **_WHOLE}),
    "qwen3-rerank": Server("qwen3-rerank", {"ctx-size": 1024}, {"reranking": True, **_WHOLE}),
    "last": Server("tiny", {"ctx-size": 1024, "embeddings": True, "pooling": "last"}, {}),
    "none": Server("tiny", {"ctx-size": 1024, "embeddings": True, "pooling": "none"}, {}),
    "unset": Server("tiny", {"ctx-size": 1024, "embeddings": True}, {}),
    "plain": Server("tiny", {"ctx-size": 1024}, {}),
}

CASES = [
    *(
        Case("bert", "/v1/embeddings", {"input": TEXTS[:2]} | fields)
        for fields in (
            {},
            {"input": TEXTS[0]},
            {"input": TOKENS},
            {"input": [TOKENS, TOKENS[:2]]},
            {"input": [TOKENS, TEXTS[2]]},
            {"encoding_format": "base64"},
            {"model": "gpt-x", "user": "me"},
            {"embd_normalize": -1},
            {"embd_normalize": 0},
            {"embd_normalize": 1},
            {"embd_normalize": 3},
            {"input": ""},
            {"input": []},
            {"encoding_format": "int8"},
        )
    ),
    Case("bert", "/v1/embeddings", {}),
    Case("bert", "/v1/embeddings", {"content": TEXTS[0]}),
    Case("bert", "/embedding", {"content": TEXTS[0]}),
    Case("bert", "/embeddings", {"input": TEXTS}),
    Case("bert-cls", "/v1/embeddings", {"input": TEXTS}),
    Case("bert-cls", "/embedding", {"content": TEXTS[0], "embd_normalize": 2}),
    *(
        Case("rerank", path, {"query": "was it hot"} | fields)
        for path, fields in (
            ("/v1/rerank", {"documents": TEXTS}),
            ("/rerank", {"documents": TEXTS, "top_n": 2, "model": "m"}),
            ("/v1/reranking", {"texts": TEXTS}),
            ("/reranking", {"texts": TEXTS, "return_text": True, "top_n": 1}),
            ("/v1/rerank", {"documents": []}),
            ("/v1/rerank", {}),
            ("/v1/rerank", {"query": 5, "documents": TEXTS}),
        )
    ),
    Case("qwen3-rerank", "/v1/rerank", {"query": "was it hot", "documents": TEXTS}),
    Case("last", "/v1/embeddings", {"input": TEXTS}),
    Case("last", "/embedding", {"content": TEXTS[0]}),
    Case("none", "/v1/embeddings", {"input": TEXTS}),
    Case("none", "/embedding", {"content": TEXTS[2]}),
    Case("unset", "/embedding", {"content": TEXTS[2]}),
    Case("plain", "/v1/embeddings", {"input": TEXTS}),
    Case("plain", "/v1/rerank", {"query": "q", "documents": TEXTS}),
]


def ask(url: str, case: Case, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """Status and document of an answer, its numbers short."""
    answer = requests.post(url + case.path, json=case.body, headers=headers, timeout=60)
    return {"status": answer.status_code, "document": _short(answer.json())}


def _short(value: Any) -> Any:
    match value:
        case float():
            return round(value, DIGITS)
        case list():
            return [_short(part) for part in value]
        case dict():
            return {name: _short(part) for name, part in value.items()}
    return value


def main() -> None:
    llama_server, server = peer(__doc__)
    found = {}
    for name, (model, options, only_theirs) in SERVERS.items():
        with llama_server.running(
            server, generated(model), options | only_theirs | {"alias": "tiny"}, {}
        ) as door:
            url = f"http://{door.host}:{door.port}"
            found |= {case.name: ask(url, case) for case in CASES if case.server == name}
    lines = (f"{json.dumps(name)}: {json.dumps(answer, sort_keys=True)}" for name, answer in found.items())
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(found)} answers in {RECORDED}")


if __name__ == "__main__":
    main()
