"""What llama.cpp's router says of itself and of its models: the requests, one after another, and how they are recorded.

python -m tests.likeness.router [--llama-server PATH]
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.conftest import wait_until
from tests.likeness.asking import Likeness, ask
from tests.likeness.cases import MESSAGES, Case
from tests.likeness.peer import peer
from tests.model.generated import generated

RECORDED = Path(__file__).with_name("router.json")
WITHIN_S = 60.0
MODELS_MAX = 1
CHAT = {"messages": MESSAGES, "max_tokens": 2}

CASES = [
    Case("router: health", "GET", "/health"),
    Case("router: props", "GET", "/props"),
    Case("router: models", "GET", "/models"),
    Case("router: load nothing", "POST", "/models/load", {}),
    Case("router: load what there is not", "POST", "/models/load", {"model": "nothing"}),
    Case("router: unload what there is not", "POST", "/models/unload", {"model": "nothing"}),
    Case("router: load", "POST", "/models/load", {"model": "two"}),
    Case("router: load again", "POST", "/models/load", {"model": "two"}),
    Case("router: models, one loaded", "GET", "/v1/models"),
    Case("router: its props", "GET", "/props?model=two"),
    Case("router: its slots by alias", "GET", "/slots?model=zwei"),
    Case("router: its adapters", "GET", "/lora-adapters?model=two"),
    Case("router: its metrics", "GET", "/metrics?model=two"),
    Case("router: slots of nobody", "GET", "/slots"),
    Case("router: slots of what there is not", "GET", "/slots?model=nothing"),
    Case("router: tokenize", "POST", "/tokenize", {"model": "two", "content": "Hello"}),
    Case("router: a chat", "POST", "/v1/chat/completions", {"model": "zwei", **CHAT}),
    Case("router: a chat with nobody", "POST", "/v1/chat/completions", CHAT),
    Case(
        "router: a chat with what there is not",
        "POST",
        "/v1/chat/completions",
        {"model": "nothing", **CHAT},
    ),
    Case(
        "router: what may not load",
        "POST",
        "/tokenize?autoload=false",
        {"model": "org/one:Q4", "content": "Hello"},
    ),
    Case("router: another instead", "POST", "/tokenize", {"model": "org/one:Q4", "content": "Hello"}),
    Case("router: unload", "POST", "/models/unload", {"model": "org/one:Q4"}),
    Case("router: unload again", "POST", "/models/unload", {"model": "org/one:Q4"}),
    Case("router: reload", "GET", "/models?reload=1"),
    Case("router: a stream there is not", "GET", "/v1/stream?conv_id=nothing"),
    Case("router: the end of a stream there is not", "DELETE", "/v1/stream?conv_id=nothing"),
    Case("router: streams", "POST", "/v1/streams/lookup", {"conversation_ids": ["nothing"]}),
]


def presets() -> str:
    """Of two models."""
    common = f"model = {generated('tiny')}\nc = 512\nnp = 1\nmetrics = true\n"
    return f"version = 1\n[org/one:Q4]\n{common}tags = x\n[two]\n{common}alias = zwei\n"


def ask_in_turn(url: str) -> Iterator[tuple[Case, Likeness]]:
    """Each with its answer, after the order before it has been carried out."""
    for case in CASES:
        yield case, ask(url, case, {})
        if case.name in ("router: load", "router: unload"):
            wanted = case.path.removeprefix("/models/") + "ed"
            assert case.body is not None
            wait_until(lambda: _state(url, case.body["model"]) == wanted, WITHIN_S)  # noqa: B023 - at once


def _state(url: str, model: str) -> str:
    models: list[dict[str, Any]] = requests.get(url + "/models", timeout=30).json()["data"]
    return next(each["status"]["value"] for each in models if each["id"] == model)


def main() -> None:
    llama_server, server = peer(__doc__)
    with _running(server, llama_server.free_port(0)) as url:
        found = {case.name: likeness for case, likeness in ask_in_turn(url)}
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{len(found)} answers in {RECORDED}")


@contextmanager
def _running(server: Path, port: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "models.ini")
        file.write_text(presets())
        options = ["--port", str(port), "--models-preset", str(file), "--models-max", str(MODELS_MAX)]
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                [str(server), *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: _answers(url), WITHIN_S)
            yield url
        finally:
            process.terminate()
            process.wait(WITHIN_S)


def _answers(url: str) -> bool:
    try:
        return requests.get(url + "/health", timeout=5).ok
    except requests.ConnectionError:
        return False


if __name__ == "__main__":
    main()
