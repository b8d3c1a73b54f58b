"""Documents that clients of llama.cpp's router and of llamactl rely on."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from llamad.config.settings import GgufFacts, ModelSpec, Settings
from llamad.core.view import ModelView, QueueView
from llamad.daemon.documents import limits_document, model_document, props_document, queue_document
from llamad.daemon.monitor import Instance

VIEW = ModelView(
    name="m", aliases=("mm",), state="unloaded", stopping=False, draining=False, progress=0.0, child=0, leases=0,
    waiting=0, pinned=False, reason="never loaded",
    since=1.0, failed=False, exit_code=None, signal=None, failures=0,
    retry_at=None, last_used_at=None, loaded_at=None,
)  # fmt: skip
SPEC = ModelSpec(
    "m", "/m.gguf", tags=("t",), args=("llamad", "--model", "/m.gguf"), preset="[m]\n", created=5,
    facts=GgufFacts(architecture="llama", n_ctx_train=8192, n_vocab=100),
)  # fmt: skip
SETTINGS = Settings(runtime_dir="/r", state_dir="/s")


def test_a_model_at_rest() -> None:
    document = model_document(VIEW, SPEC, None, now=10.0)
    assert document["id"] == "m"
    assert (document["object"], document["owned_by"], document["created"]) == ("model", "llamad", 5)
    assert (document["aliases"], document["tags"], document["source"]) == (["mm"], ["t"], "preset")
    assert document["can_remove"] is False
    assert document["status"] == {
        "value": "unloaded",
        "args": ["llamad", "--model", "/m.gguf"],
        "preset": "[m]\n",
    }
    assert document["meta"] == {"architecture": "llama", "n_vocab": 100, "n_ctx_train": 8192}
    assert document["llamad"]["last_used_s"] is None
    assert document["llamad"]["since_s"] == 9.0
    assert document["llamad"]["pid"] is None


def test_a_model_that_runs_tells_what_its_process_said() -> None:
    payload = {"n_ctx": 1024, "n_ctx_slot": 512, "n_slots": 2, "bytes": {"host": 7}, "meta": {"n_vocab": 101}}
    instance = Instance(3, SPEC, "secret", "", ready_payload=payload)
    view = replace(VIEW, state="loaded", child=3, last_used_at=4.0, loaded_at=2.5)
    document = model_document(view, SPEC, instance, now=10.0)
    assert document["meta"]["n_vocab"] == 101
    assert document["meta"]["n_ctx"] == 512
    assert document["llamad"]["memory"] == {
        "host": {"held_bytes": 7, "measured_bytes": None, "discrepancy_bytes": None}
    }
    assert (document["llamad"]["last_used_s"], document["llamad"]["loaded_s"]) == (6.0, 7.5)
    assert document["llamad"]["placement"] == []
    assert "secret" not in repr(document)


def test_where_a_model_is() -> None:
    instance = Instance(3, SPEC, "secret", "")
    view = replace(VIEW, state="loaded", child=3, held={"host": 1, "CUDA0": 0, "CUDA1": 7})
    assert model_document(view, SPEC, instance, now=10.0)["llamad"]["placement"] == ["CUDA1"]
    assert model_document(VIEW, SPEC, None, now=10.0)["llamad"]["placement"] is None


@pytest.mark.parametrize(
    ("exit_code", "number", "shown"), [(1, None, 1), (None, 9, 137)], ids=["status", "signal"]
)
def test_a_failure_shows_as_a_shell_would_say_it(
    exit_code: int | None, number: int | None, shown: int
) -> None:
    view = replace(VIEW, failed=True, exit_code=exit_code, signal=number, failures=2, retry_at=12.0)
    document = model_document(view, SPEC, None, now=10.0)
    assert (document["status"]["failed"], document["status"]["exit_code"]) == (True, shown)
    assert (document["llamad"]["signal"], document["llamad"]["retry_in_s"]) == (number, 2.0)


def test_progress_shows_while_loading_only() -> None:
    assert (
        model_document(replace(VIEW, state="loading", progress=0.12345), SPEC, None, now=1.0)["status"][
            "progress"
        ]
        == 0.123
    )
    assert "progress" not in model_document(VIEW, SPEC, None, now=1.0)["status"]


def test_a_model_that_is_configured_no_more_but_still_runs() -> None:
    document = model_document(
        replace(VIEW, state="loaded", child=3), None, Instance(3, SPEC, "t", ""), now=1.0
    )
    assert document["tags"] == ["t"]


def test_a_projector_does_not_make_images_an_input() -> None:
    document = model_document(VIEW, replace(SPEC, mmproj="/p.gguf"), None, now=1.0)
    assert document["architecture"]["input_modalities"] == ["text"]


def test_the_rest() -> None:
    assert queue_document(QueueView("m", 3, 4.0, ("x",)), now=10.0) == {
        "model": "m",
        "waiters": 3,
        "waited_s": 6.0,
        "draining": ["x"],
    }
    assert limits_document(SETTINGS)["models_max"] == 4
    props = props_document(SETTINGS)
    assert (props["role"], props["max_instances"], props["models_autoload"]) == ("router", 4, True)
    assert re.fullmatch(r"b\d+-.+", props["build_info"])
    assert props["default_generation_settings"] == {"params": None, "n_ctx": 0}
