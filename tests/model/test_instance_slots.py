"""`POST /slots/{id}`: what a slot remembers survives its process, and is of use to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.model.test_instance_serving import Instance, loaded

pytestmark = pytest.mark.model

PROMPT = "The history of the lighthouse is a long one. " * 12


def act(instance: Instance, action: str, name: str | None = None, status: int = 200, slot: str = "0") -> Any:
    body = {} if name is None else {"filename": name}
    return instance.post(f"/slots/{slot}?action={action}", body, status)


@pytest.mark.parametrize("model", ["smollm2", "gemma"])
def test_a_conversation_goes_on_in_the_next_process(
    model: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(model)
    options = {"ctx-size": 512, "parallel": 1, "slot-save-path": str(tmp_path)}
    ask = {"prompt": PROMPT, "n_predict": 6, "temperature": 0}
    with loaded(path, options) as instance:
        first = instance.post("/completion", ask)
        saved = act(instance, "save", "lighthouse")
        assert saved["id_slot"] == 0
        assert saved["n_saved"] > 100
        assert saved["n_written"] == (tmp_path / "lighthouse").stat().st_size
        assert saved["timings"]["save_ms"] > 0
    with loaded(path, options) as instance:
        back = act(instance, "restore", "lighthouse")
        assert (back["n_restored"], back["n_read"]) == (saved["n_saved"], saved["n_written"])
        again = instance.post(
            "/completion", {"prompt": PROMPT + first["content"] + " and"} | {"n_predict": 4}
        )
        assert again["timings"]["cache_n"] > 100
        assert act(instance, "erase")["n_erased"] > 100
        assert act(instance, "erase")["n_erased"] == 0


def test_what_cannot_be_done_is_said(smollm2: Path, tmp_path: Path) -> None:
    with loaded(smollm2, {"ctx-size": 256, "parallel": 1, "slot-save-path": str(tmp_path)}) as instance:
        assert act(instance, "save", "x", 409)["error"]["kind"] == "slot-empty"
        assert act(instance, "restore", "x", 404)["error"]["kind"] == "slot-file-not-found"
        assert act(instance, "save", "../x", 400)["error"]["param"] == "filename"
        assert act(instance, "save", None, 400)["error"]["param"] == "filename"
        assert act(instance, "paint", "x", 400)["error"]["param"] == "action"
        assert "there are 1" in act(instance, "erase", None, 400, slot="7")["error"]["message"]
        assert act(instance, "erase", None, 400, slot="first")["error"]["param"] == "id"
        (tmp_path / "text").write_text("hello")
        assert act(instance, "restore", "text", 400)["error"]["kind"] == "slot-state"
    with loaded(smollm2, {"ctx-size": 256, "parallel": 1}) as instance:
        assert act(instance, "erase", None, 501)["error"]["kind"] == "not-supported"
