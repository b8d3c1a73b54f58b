"""An instance's answers have the fields and types of llama-server's, but for what is written down as intended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.likeness.asking import ask
from tests.likeness.cases import CASES, Case
from tests.likeness.record import OPTIONS, RECORDED
from tests.likeness.shape import differences
from tests.model.generated import generated
from tests.model.test_instance_serving import Instance, loaded

pytestmark = pytest.mark.model

INTENDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "likeness/intended.json").read_text()
)


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    with loaded(generated("tiny"), OPTIONS | {"metrics": True, "props": True}) as found:
        yield found


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_answer_looks_like_llama_servers(case: Case, instance: Instance, recorded: dict[str, Any]) -> None:
    ours, theirs = ask(instance.url, case, instance.headers), recorded[case.name]
    lines = [
        f"{name} {ours[name]}, not {theirs[name]}"
        for name in ("status", "type")
        if ours[name] != theirs[name]
    ]
    lines += differences(ours["shape"], theirs["shape"])
    unintended = [line for line in lines if not is_intended(case, line)]
    assert not unintended, "\n".join(unintended)


def is_intended(case: Case, line: str) -> bool:
    return any(
        any(fnmatchcase(case.name, name) for name in one["cases"])
        and any(fnmatchcase(line, pattern) for pattern in one["differences"])
        for one in INTENDED
    )
