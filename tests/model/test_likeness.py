"""An instance's answers have the fields and types of llama-server's, but for what is written down as intended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.likeness.asking import Likeness, ask
from tests.likeness.cases import GROUPS, Case
from tests.likeness.record import RECORDED
from tests.likeness.shape import differences
from tests.model.generated import generated
from tests.model.test_instance_serving import Instance, loaded

pytestmark = pytest.mark.model

INTENDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "likeness/intended.json").read_text()
)


@pytest.fixture(scope="module")
def instances() -> Iterator[dict[str, Instance]]:
    """By the names of their models."""
    with ExitStack() as stack:
        yield {
            model: stack.enter_context(loaded(generated(model), group.options))
            for model, group in GROUPS.items()
        }


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize(
    ("model", "case"),
    [pytest.param(model, case, id=case.name) for model, group in GROUPS.items() for case in group.cases],
)
def test_an_answer_looks_like_llama_servers(
    model: str, case: Case, instances: dict[str, Instance], recorded: dict[str, Any]
) -> None:
    instance, theirs = instances[model], recorded[model][case.name]
    unintended = [
        line
        for line in different(ask(instance.url, case, instance.headers), theirs)
        if not is_intended(case, line)
    ]
    assert not unintended, "\n".join(unintended)


def different(ours: Likeness, theirs: Likeness) -> list[str]:
    lines = [
        f"{name} {ours[name]}, not {theirs[name]}"
        for name in ("status", "type")
        if ours[name] != theirs[name]
    ]
    return lines + differences(ours["shape"], theirs["shape"])


def is_intended(case: Case, line: str) -> bool:
    return any(
        any(fnmatchcase(case.name, name) for name in one["cases"])
        and any(fnmatchcase(line, pattern) for pattern in one["differences"])
        for one in INTENDED
    )
