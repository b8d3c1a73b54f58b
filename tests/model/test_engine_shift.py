"""Context shift on real models: long answers go on and stay readable; a model that cannot shift says no."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llamad.engine.vocabulary import Failed, SamplingParams
from tests.engine.live import Live, live
from tests.model.generated import generated
from tests.model.test_instance_serving import loaded as served

pytestmark = pytest.mark.model

ENDLESS = SamplingParams(temperature=0.0, ignore_eos=True)
SENTENCE = "The sky is blue and the grass is green. "
SKY = SENTENCE * 16


@pytest.fixture(scope="module")
def shifting(smollm2: Path) -> Iterator[Live]:
    with live(smollm2, n_ctx=256, n_parallel=2, context_shift=True) as engine:
        yield engine


def test_an_answer_goes_on_beyond_the_context_and_makes_sense(shifting: Live) -> None:
    text, end = shifting.ask(SKY, 130, n_keep=4, sampling=ENDLESS)
    assert (end.reason, end.truncated) == ("length", True)
    assert end.timings.predicted_tokens == 130
    assert text.strip() in SENTENCE * 30


def test_a_prompt_longer_than_the_context_keeps_its_end(shifting: Live) -> None:
    shifting.settle()
    text, end = shifting.ask("The weather is fine. " * 40 + SKY, 12)
    assert end.truncated
    assert end.timings.prompt_tokens < 256
    assert text.strip() in SENTENCE * 2


def test_two_that_share_a_prompt_shift_each_for_itself(shifting: Live) -> None:
    shifting.settle()
    first = shifting.last_id + 1
    ids = [shifting.submit(SKY, 130, n_keep=8, family=first, sampling=ENDLESS) for _ in range(2)]
    shifting.wait(*ids)
    for id in ids:
        assert shifting.finished(id).timings.predicted_tokens == 130
        assert shifting.texts[id].strip() in SENTENCE * 30


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_a_recurrent_model_goes_on_too(name: str) -> None:
    with live(generated(name), n_ctx=256, n_parallel=1, context_shift=True) as engine:
        _, end = engine.ask("the people of the city", 400, sampling=ENDLESS)
        assert (end.truncated, end.timings.predicted_tokens) == (True, 400)


def test_a_model_whose_memory_cannot_shift_refuses_what_is_too_long(
    gemma: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"), live(gemma, n_ctx=2048, n_parallel=1, context_shift=True) as engine:
        assert "context-shift is off" in caplog.text
        id = engine.submit("The weather is fine. " * 500)
        engine.wait(id)
        end = engine.ends[id]
        assert isinstance(end, Failed)
        assert end.error.kind == "exceed-context-size"


def test_over_http_the_answer_says_that_it_was_truncated(smollm2: Path) -> None:
    options = {"ctx-size": 256, "parallel": 1, "context-shift": True, "keep": 8}
    with served(smollm2, options) as instance:
        answer = instance.post(
            "/completion", {"prompt": SKY, "n_predict": 120, "temperature": 0, "ignore_eos": True}
        )
        assert (answer["truncated"], answer["stop_type"]) == (True, "limit")
        assert answer["generation_settings"]["n_keep"] == 8
        long = instance.post("/completion", {"prompt": [1] * 1000, "n_predict": 4, "n_keep": -1})
        assert long["truncated"] is True
