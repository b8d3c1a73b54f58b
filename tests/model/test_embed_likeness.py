"""An instance's vectors, scores and the documents around them are llama-server's."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.engine.live_embed import cosine
from tests.likeness.vectors import CASES, RECORDED, SERVERS, Case, ask
from tests.model.generated import generated
from tests.model.test_instance_serving import Instance, loaded

pytestmark = pytest.mark.model

SAME = 0.9999


@pytest.fixture(scope="module", params=SERVERS)
def instance(request: pytest.FixtureRequest) -> Iterator[tuple[str, Instance]]:
    model, options, _ = SERVERS[request.param]
    with loaded(generated(model), options) as found:
        yield request.param, found


def test_answers_are_llama_servers(instance: tuple[str, Instance]) -> None:
    name, found = instance
    recorded = json.loads(RECORDED.read_text())
    asked = [case for case in CASES if case.server == name]
    assert asked
    for case in asked:
        ours, theirs = ask(found.url, case, found.headers), recorded[case.name]
        assert ours["status"] == theirs["status"], case.name
        if ours["status"] == 200:
            assert_alike(case, ours["document"], theirs["document"])
        else:
            mine, other = ours["document"]["error"], theirs["document"]["error"]
            assert (mine["code"], mine["type"]) == (other["code"], other["type"]), case.name


def assert_alike(case: Case, ours: Any, theirs: Any) -> None:
    if isinstance(theirs, dict) and "data" in theirs:
        assert_vectors(case, ours.pop("data"), theirs.pop("data"))
    elif case.path.startswith("/embedding") or "content" in case.body:
        assert_vectors(case, ours, theirs)
        return
    elif "rank" in case.path:
        mine, other = (each["results"] if isinstance(each, dict) else each for each in (ours, theirs))
        for left, right in zip(mine, other, strict=True):
            for field in ("score", "relevance_score"):
                assert left.pop(field, 0) == pytest.approx(right.pop(field, 0), abs=0.02), case.name
    assert ours == theirs, case.name


def assert_vectors(case: Case, ours: list[Any], theirs: list[Any]) -> None:
    for left, right in zip(ours, theirs, strict=True):
        mine, other = (numbers(each.pop("embedding")) for each in (left, right))
        assert mine.shape == other.shape, case.name
        assert cosine(mine, other) > SAME, case.name
        assert np.linalg.norm(mine) == pytest.approx(np.linalg.norm(other), rel=0.01), case.name
        assert left == right, case.name


def numbers(value: Any) -> np.ndarray:
    return np.frombuffer(base64.b64decode(value), "<f4") if isinstance(value, str) else np.array(value)
