"""Two differently configured models with room for one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import wait_until
from tests.harness import Llamad, events, text_of

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def daemon(presets: str) -> Iterator[Llamad]:
    with Llamad(presets, "--models-max", "1") as daemon:
        yield daemon


def complete(daemon: Llamad, model: str) -> str:
    body = {"model": model, "prompt": "One, two, three, four,", "max_tokens": 8, "temperature": 0}
    answer = daemon.post("/v1/completions", body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_requests_to_both_at_once_are_all_answered(daemon: Llamad) -> None:
    models = ["smol", "gemma"] * 4
    with ThreadPoolExecutor(len(models)) as pool:
        answers = list(pool.map(lambda model: complete(daemon, model), models))
    assert all("five" in answer for answer in answers), answers
    assert sum(daemon.state(model) == "loaded" for model in ("smol", "gemma")) == 1


def test_a_running_stream_is_never_cut_by_the_other_models_load(daemon: Llamad) -> None:
    answer = daemon.chat("smol", "Tell me a long story.", stream=True, max_tokens=120, ignore_eos=True)
    stream = events(answer)
    seen = [next(stream) for _ in range(10)]
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(complete, daemon, "gemma")
        wait_until(lambda: daemon.admin("GET", "/status")["queue"])
        assert daemon.state("smol") == "loaded"
        seen += list(stream)
        ended_s = time.monotonic()
        assert "five" in other.result(timeout=60)
        assert time.monotonic() > ended_s
    assert seen[-1] == "[DONE]"
    assert seen[-2]["choices"][0]["finish_reason"] == "length"
    assert text_of(seen)


def test_each_model_has_its_own_settings(daemon: Llamad) -> None:
    for model, n_ctx, slots in (("smol", 2048, 4), ("gemma", 1024, 1)):
        complete(daemon, model)
        assert [row["model"] for row in daemon.ps("instance")] == [model]
        shown = daemon.model(model)
        assert shown["meta"]["n_ctx"] == n_ctx, shown["meta"]
        assert shown["meta"]["n_slots"] == slots, shown["meta"]
