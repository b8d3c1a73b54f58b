"""A client hears of no model that is not for it, whatever has become of its own because of another."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.daemon_kit import Daemon, running

MODELS = {"mine": "|alias = m", "other": "", "hidden": "|unlisted = true"}
KEYS = "guest name=guest models=mine\napp name=app\nkeeper name=keeper scope=manage models=mine\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    keys: Path = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    with running(MODELS, "--models-max", "1", "--api-key-file", str(keys)) as found:
        yield found


def call(daemon: Daemon, key: str, method: str, path: str, **body: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20)
    try:
        connection.request(method, path, json.dumps(body) if body else None, {"x-api-key": key})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("in_the_way", "key", "told"),
    [
        ("other", "guest", "another model"),
        ("other", "app", "'other'"),
        ("hidden", "guest", "another model"),
        ("hidden", "app", "another model"),
    ],
)
def test_why_a_model_is_not_loaded(daemon: Daemon, in_the_way: str, key: str, told: str) -> None:
    for model in ("mine", in_the_way):
        assert daemon.post("/models/load", model=model, wait=True)[0] == 200
    reason = f"unloaded to make room for {told}"
    assert call(daemon, key, "GET", "/v1/models/m")["llamad"]["reason"] == reason
    [listed] = [found for found in call(daemon, key, "GET", "/models")["data"] if found["id"] == "mine"]
    assert listed["llamad"]["reason"] == reason
    assert in_the_way in daemon.model("mine")["llamad"]["reason"], "operators see all"


@pytest.mark.parametrize(
    ("key", "told"), [("guest", "another model"), ("keeper", "another model"), ("app", "'other'")]
)
def test_why_a_request_is_refused(daemon: Daemon, key: str, told: str) -> None:
    assert daemon.post("/models/pin", model="other")[0] == 200
    assert daemon.post("/models/load", model="other", wait=True)[0] == 200
    try:
        error = call(daemon, key, "POST", "/completion", model="mine", prompt="hi")["error"]
        assert error["kind"] == "all-pinned"
        assert error["message"].startswith("cannot load 'mine': ")
        assert error["message"].endswith(f"and {told} is pinned")
        if key == "keeper":
            error = call(daemon, key, "POST", "/models/load", model="mine", wait=True)["error"]
            assert error["message"].endswith("and another model is pinned")
    finally:
        assert daemon.post("/models/unpin", model="other")[0] == 200
