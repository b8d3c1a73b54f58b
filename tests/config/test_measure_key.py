"""When a measurement still holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from llamad.config.measure_key import _WITHOUT_EFFECT, measure_key
from llamad.config.options import ROWS
from llamad.config.sources import identity

BASE: dict[str, Any] = {
    "files": ["/m/a.gguf:100:1", "/m/b.gguf:100:1"],
    "options": {"ctx-size": 4096, "cache-type-k": "f16", "logit-bias": ("1+1",)},
    "environment": {"A": "1"},
    "devices": [("CUDA0", 8), ("CUDA1", 9)],
    "build": "1.0",
}


def test_the_name_is_stable() -> None:
    """Across processes and releases: kept files would be of no use otherwise."""
    assert measure_key(**BASE) == "6a52123ba409735620f4378de5ea672b"


@pytest.mark.parametrize(
    "other",
    [
        {"options": {"logit-bias": (), "cache-type-k": "f16", "ctx-size": 4096}},
        {"options": {**BASE["options"], "temperature": 0.1, "alias": ("x",), "pinned": True}},
        {"devices": [("CUDA1", 9), ("CUDA0", 8)]},
    ],
)
def test_what_does_not_matter(other: dict[str, Any]) -> None:
    assert measure_key(**{**BASE, **other}) == measure_key(**BASE)


@pytest.mark.parametrize(
    "other",
    [
        {"files": ["/m/a.gguf:101:1", "/m/b.gguf:100:1"]},
        {"files": ["/m/a.gguf:100:1"]},
        {"files": ["/m/b.gguf:100:1", "/m/a.gguf:100:1"]},
        {"options": {**BASE["options"], "ctx-size": 4097}},
        {"options": {**BASE["options"], "n-gpu-layers": 3}},
        {"options": {**BASE["options"], "an-option-of-tomorrow": 1}},
        {"environment": {"A": "2"}},
        {"devices": [("CUDA0", 8)]},
        {"build": "1.1"},
    ],
)
def test_what_matters(other: dict[str, Any]) -> None:
    assert measure_key(**{**BASE, **other}) != measure_key(**BASE)


def test_a_rewritten_file_has_another_name(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"1")
    before = measure_key(**{**BASE, "files": [identity(str(path), path.stat())]})
    os.utime(path, ns=(5, 5))
    assert measure_key(**{**BASE, "files": [identity(str(path), path.stat())]}) != before


def test_only_known_options_are_left_out() -> None:
    assert {option.name for option in ROWS} >= _WITHOUT_EFFECT
