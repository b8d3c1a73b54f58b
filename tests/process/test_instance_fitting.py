"""What an instance chooses where its configuration leaves it open, given what a measuring would say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from llamad.child import fitting
from llamad.child.fitting import fitted
from llamad.engine.vocabulary import EngineSettings
from llamad.errors import LlamadError, OutOfMemoryError
from tests.config.gguf_kit import model_bytes

TRAINED = 4096
LEAST: dict[str, Any] = {"n_ctx": 512, "n_gpu_layers": 0, "bytes": {"host": {"kv": 1, "total": 1000}}}
CHOSEN: dict[str, Any] = {"n_ctx": 1024, "n_gpu_layers": 3, "bytes": {"host": {"kv": 1, "total": 2000}}}


class Measurer:
    """Says what it was told to, and remembers what it was asked."""

    def __init__(self, payload: dict[str, Any] | None) -> None:
        self.payload = payload
        self.asked: list[dict[str, Any]] = []

    def __call__(self, body: dict[str, Any]) -> dict[str, Any] | None:
        self.asked.append(body)
        return self.payload


@pytest.fixture
def settings(tmp_path: Path) -> EngineSettings:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(model_bytes(llama__context_length=TRAINED))
    return EngineSettings(str(path), n_parallel=2)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting.llama, "supports_gpu", lambda: False)


def test_what_fits_is_taken(settings: EngineSettings) -> None:
    measurer = Measurer({"chosen": CHOSEN, "reason": "", "minimum": LEAST})
    body = {"model": "m", "options": {"fit-ctx": 512, "parallel": 2}, "reserved": {"host": 2000}}
    found = fitted(settings, body, measurer)
    assert found == dataclasses.replace(settings, n_ctx=1024, n_gpu_layers=3)
    assert measurer.asked == [{**body, "path": settings.path}]


@pytest.mark.parametrize(
    ("n_ctx", "body", "expected"),
    [
        (0, {}, TRAINED),
        (0, {"options": {"fit": "off"}, "reserved": {"host": 1}}, TRAINED),
        (0, {"options": {"ctx-size": 0}, "reserved": {"host": 1}}, TRAINED),
        (256, {"options": {"ctx-size": 256}, "reserved": {"host": 1}}, 256),
        (0, {"options": {}, "reserved": {"host": 1000}, "maximum": {"host": 1000}}, TRAINED),
        (0, {"options": {}, "reserved": {"host": 1000}, "maximum": {"host": 900, "CUDA0": 5}}, TRAINED),
    ],
)
def test_nothing_is_measured_where_nothing_is_to_be_chosen(
    settings: EngineSettings, n_ctx: int, body: dict[str, Any], expected: int
) -> None:
    measurer = Measurer(None)
    configured = dataclasses.replace(settings, n_ctx=n_ctx)
    assert fitted(configured, body, measurer) == dataclasses.replace(settings, n_ctx=expected)
    assert measurer.asked == []


@pytest.mark.parametrize(
    "body",
    [
        {"options": {}, "reserved": {"host": 999}, "maximum": {"host": 1000}},
        {"options": {"fit-target": "64"}, "reserved": {"host": 1000}, "maximum": {"host": 1000}},
        {"options": {"fit-target": "64"}},
        {"options": {}, "reserved": {}},
    ],
)
def test_else_it_is(settings: EngineSettings, body: dict[str, Any]) -> None:
    measurer = Measurer({"chosen": CHOSEN, "minimum": LEAST})
    assert fitted(settings, body, measurer).n_ctx == 1024
    assert len(measurer.asked) == 1


def test_without_books_a_gpu_is_left_what_llama_server_leaves(
    settings: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting.llama, "supports_gpu", lambda: True)
    measurer = Measurer({"chosen": CHOSEN, "minimum": LEAST})
    fixed = dataclasses.replace(settings, n_ctx=256)
    fitted(fixed, {"options": {"ctx-size": 256}}, measurer)
    (asked,) = measurer.asked
    assert asked["options"] == {"ctx-size": 256, "fit-target": "1024"}
    assert asked["reserved"] == {}
    nothing_open = dataclasses.replace(fixed, n_gpu_layers=3)
    fitted(nothing_open, {"options": {"ctx-size": 256, "n-gpu-layers": 3}}, measurer)
    assert len(measurer.asked) == 1


def test_it_is_measured_where_it_was_placed(settings: EngineSettings) -> None:
    measurer = Measurer({"chosen": CHOSEN, "reason": "", "minimum": LEAST})
    way = {"devices": ["A", "B"], "tensor_split": [2.0, 1.0]}
    fitted(settings, {"options": {}, "reserved": {"host": 2000}, **way}, measurer)
    assert {name: measurer.asked[0][name] for name in way} == way


def test_without_any_gpu_to_use_there_is_nothing_to_choose(
    settings: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting.llama, "supports_gpu", lambda: True)
    measurer = Measurer(None)
    fitted(dataclasses.replace(settings, devices=("none",)), {"options": {"device": "none"}}, measurer)
    assert measurer.asked == []


@pytest.mark.parametrize(("reserved", "enough"), [(1000, True), (975, True), (960, False)])
def test_the_least_may_be_a_little_more_than_was_reserved(
    settings: EngineSettings, reserved: int, enough: bool
) -> None:
    """The promise rests on an earlier measuring, and the overhead of a process differs from time to time."""
    measurer = Measurer({"chosen": None, "reason": "1 MiB needed on host", "minimum": LEAST})
    body = {"options": {}, "reserved": {"host": reserved}}
    if enough:
        assert fitted(settings, body, measurer).n_ctx == 512
    else:
        with pytest.raises(OutOfMemoryError, match="1 MiB needed on host"):
            fitted(settings, body, measurer)


@pytest.mark.parametrize(("unified", "n_ctx"), [(True, 512), (False, 1024)])
def test_without_an_answer_the_smallest_context_is_tried(
    settings: EngineSettings, unified: bool, n_ctx: int
) -> None:
    several = dataclasses.replace(settings, kv_unified=unified)
    body = {"options": {"fit-ctx": 512}, "reserved": {"host": 1}}
    assert fitted(several, body, Measurer(None)) == dataclasses.replace(several, n_ctx=n_ctx)


def test_a_measuring_child_that_cannot_is_no_answer(tmp_path: Path) -> None:
    assert fitting.measured({"path": str(tmp_path / "missing.gguf"), "options": {}}) is None


def test_a_file_that_is_no_model_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF")
    measurer = Measurer(None)
    with pytest.raises(LlamadError, match=f"cannot load {path}"):
        fitted(EngineSettings(str(path)), {"options": {}, "reserved": {"host": 1}}, measurer)
    assert measurer.asked == []
