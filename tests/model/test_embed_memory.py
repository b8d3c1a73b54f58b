"""Measuring models that make vectors: what is told beforehand is what they take, the largest input included."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.model.generated import BERT_POSITIONS, N_VOCAB_BERT, generated
from tests.model.test_instance_serving import Instance, loaded
from tests.model.test_measure import anonymous_bytes, mapped_bytes, measured

pytestmark = pytest.mark.model

TOLERANCE = 0.03
MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "options", "fields"),
    [
        ("bert-wide", {}, {"n_ctx": BERT_POSITIONS}),
        ("bert-wide", {"ctx-size": 256, "ubatch-size": 64}, {"n_ctx": 256, "n_ubatch": 64}),
        ("rerank", {"ctx-size": 512}, {"n_ctx": 512}),
        ("wide", {"ctx-size": 1024, "embeddings": True, "cache-ram": 0}, {"n_ctx": 1024, "embedding": True}),
        ("jamba", {"ctx-size": 1024, "embeddings": True, "cache-ram": 0}, {"n_ctx": 1024, "embedding": True}),
    ],
)
def test_what_is_measured_is_what_a_load_takes(
    name: str, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    path = generated(name)
    predicted = measured(path, options)["maximum"]["bytes"]["host"]
    command = [sys.executable, "-m", "tests.model.real_load", json.dumps({"path": str(path), **fields})]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    real = json.loads(done.stdout)["host"]
    # Outputs that are there already are seen as overhead.
    for purpose in ("weights", "kv"):
        assert predicted[purpose] == pytest.approx(real[purpose], rel=0.001)
    taken = predicted["total"] - predicted["rules"]
    assert taken == pytest.approx(real["total"], rel=TOLERANCE, abs=3 * MIB)


def test_outputs_are_counted_before_they_are_there() -> None:
    found = measured(generated("bert-wide"), {})
    assert found["maximum"]["bytes"]["host"]["compute"] > 4 * N_VOCAB_BERT * BERT_POSITIONS
    # A smaller context is a way out where memory is short.
    small = measured(generated("bert-wide"), {"fit-ctx": 256}, reserved={"host": 130 * MIB})
    assert small["chosen"]["n_ctx"] < BERT_POSITIONS
    assert small["chosen"]["bytes"]["host"]["total"] <= 130 * MIB


@pytest.mark.parametrize(
    ("name", "options", "input"),
    [
        ("bert-wide", {}, "it " * (BERT_POSITIONS - 2)),
        ("wide", {"ctx-size": 1024, "embeddings": True, "cache-ram": 0}, "it " * 900),
    ],
)
def test_the_largest_input_touches_no_more_than_was_measured(
    name: str, options: dict[str, Any], input: str
) -> None:
    """By the kernel's account alone."""
    path = generated(name)
    predicted = measured(path, options)["maximum"]["bytes"]["host"]["total"]
    with loaded(path, options) as instance:
        assert instance.ready["bytes"]["host"] == pytest.approx(predicted, rel=TOLERANCE)
        before = taken(instance, path)
        instance.post("/v1/embeddings", {"input": [input] * 3})
        after = taken(instance, path)
    assert after > before + 100 * MIB, "the outputs are not what they were"
    assert after <= predicted * (1 + TOLERANCE)
    assert after > predicted * 0.85


def taken(instance: Instance, path: Path) -> int:
    pid = instance.child.process.pid
    return anonymous_bytes(pid) + mapped_bytes(pid, path)
