"""Speculation on real models: the same answers, and what it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests

from llamad.engine.backend import Entry
from llamad.engine.drafting import DraftModelSettings, HashSettings, NgramSettings, SpeculationSettings
from llamad.engine.vocabulary import Rules, SamplingParams, Wanted
from llamad.errors import LlamadError
from tests.engine.live import Live, live, loaded
from tests.harness import Llamad
from tests.model.generated import generated
from tests.model.test_instance_serving import loaded as instance_loaded
from tests.model.test_instance_sleep import sleep, wake
from tests.model.test_measure import Case, measured, really_loaded

pytestmark = pytest.mark.model

SAYING = "The quick brown fox jumps over the lazy dog near the river bank."
REPEAT = f"<|im_start|>user\nRepeat this exactly, twice: {SAYING}<|im_end|>\n<|im_start|>assistant\n"
CATS = "the cat sat on the mat and the cat sat on the mat and the cat"
LOOK_UP = SpeculationSettings(
    ("ngram-simple",), simple=NgramSettings(3), map_k=NgramSettings(3), mod=HashSettings(3, 1, 16)
)
TIE = 0.05
TYPES = ["ngram-simple", "ngram-map-k", "ngram-mod", "draft-simple"]


def speculation(name: str, draft: Path) -> SpeculationSettings:
    return SpeculationSettings(
        (name,), LOOK_UP.simple, LOOK_UP.map_k, LOOK_UP.mod, DraftModelSettings(str(draft), n_max=5)
    )


def ask(engine: Live, prompt: str, **fields: Any) -> tuple[str, int, int]:
    text, end = engine.ask(prompt, 40, cache_prompt=False, **fields)
    return text, end.timings.drafted_tokens, end.timings.accepted_tokens


@pytest.fixture(scope="module")
def plain(smollm2: Path) -> list[str]:
    """What SmolLM2 says without speculation: greedy, and drawn with a seed."""
    with live(smollm2, n_ctx=512, n_parallel=1) as engine:
        return [ask(engine, REPEAT)[0], ask(engine, REPEAT, sampling=SamplingParams(seed=5))[0]]


@pytest.mark.parametrize("name", TYPES)
def test_greedy_and_drawn_answers_are_the_same(name: str, smollm2: Path, plain: list[str]) -> None:
    """SmolLM2 drafts for itself here: the most that a draft model could do."""
    with live(smollm2, n_ctx=512, n_parallel=1, speculation=speculation(name, smollm2)) as engine:
        greedy, drafted, accepted = ask(engine, REPEAT)
        assert greedy == plain[0]
        assert 3 < accepted <= drafted
        assert ask(engine, REPEAT, sampling=SamplingParams(seed=5))[0] == plain[1]
        assert engine.engine.stats().accepted_tokens >= accepted


@pytest.mark.parametrize("name", TYPES)
def test_slots_together_each_say_the_likeliest_tokens(name: str) -> None:
    """Checked token by token without speculation; a batch may turn a near tie round."""
    model, draft = generated("loops" if name.startswith("ngram") else "target"), generated("tiny")
    prompts = [CATS, "is that it was for on are with as they be at " * 2, "to in is that to in is that to in"]
    said: dict[int, list[int]] = {}
    with live(model, n_ctx=2048, n_parallel=3, speculation=speculation(name, draft)) as engine:
        engine.on_text = lambda text: said.setdefault(text.id, []).extend(text.ids)
        ids = [engine.submit(prompt, 48) for prompt in prompts]
        engine.wait(*ids)
        assert engine.engine.stats().accepted_tokens
    with loaded(model, n_ctx=2048, n_parallel=1) as backend:
        for id, prompt in zip(ids, prompts, strict=True):
            tokens = backend.tokenize(prompt, True, True)
            assert len(said[id]) + len(engine.finished(id).ids) == 48
            backend.clear(0)
            backend.decode([Entry(0, 0, tokens, 1)])
            for place, token in enumerate(said[id], len(tokens)):
                row = backend.logits(0)
                assert row[token] >= row.max() - TIE
                backend.decode([Entry(0, place, [token], 1)])


def test_gemma_takes_tokens_back_inside_its_window(gemma: Path) -> None:
    text = "red green blue " * 200
    with live(gemma, n_ctx=1024, n_parallel=1, speculation=LOOK_UP) as engine:
        answer, _, accepted = ask(engine, text, wanted=Wanted(1))
        assert accepted > 20
        assert "green blue red" in answer


def test_rules_and_drafts_together(smollm2: Path) -> None:
    rules = Rules("gbnf", 'root ::= "The quick brown fox jumps over the lazy dog." [a-z ]{0,20} "!"')
    with live(smollm2, n_ctx=512, n_parallel=1) as engine:
        expected = ask(engine, REPEAT, rules=rules)[0]
    with live(smollm2, n_ctx=512, n_parallel=1, speculation=LOOK_UP) as engine:
        answer, _, accepted = ask(engine, REPEAT, rules=rules)
    assert answer == expected
    assert answer.startswith("The quick brown fox jumps over the lazy dog.")
    assert accepted


def test_a_model_that_takes_nothing_back_goes_without(caplog: pytest.LogCaptureFixture) -> None:
    with live(generated("mamba"), n_ctx=256, n_parallel=1, speculation=LOOK_UP) as engine:
        assert engine.engine.facts.speculation == ()
        assert ask(engine, CATS)[1] == 0
    assert "cannot take tokens back" in caplog.text


def test_draft_models_that_are_of_no_use_are_named_with_the_reason(smollm2: Path, tmp_path: Path) -> None:
    cases = [
        (generated("wide"), "vocabulary has 49152 tokens"),
        (generated("mamba"), "it cannot take tokens back"),
        (generated("lora-a"), "cannot load"),
        (tmp_path / "none.gguf", "there is no such file"),
    ]
    for draft, reason in cases:
        with (
            pytest.raises(LlamadError) as caught,
            loaded(
                generated("tiny"), n_ctx=256, n_parallel=1, speculation=speculation("draft-simple", draft)
            ),
        ):
            pass
        assert reason in caught.value.message
        assert str(draft) in caught.value.message


def test_what_speculation_takes_is_measured_before_it_is_loaded() -> None:
    case, path, draft = Case("target", 1024, 4, "f16"), generated("target"), str(generated("tiny"))
    predicted = measured(path, {**case.options, "spec-draft-model": draft})["maximum"]["bytes"]["host"]
    real = really_loaded(case, path, draft=draft)["host"]
    assert predicted["draft"] == pytest.approx(real["draft"], rel=0.001)
    assert real["draft"] > 1 << 20
    for purpose in ("weights", "kv", "compute"):
        assert predicted[purpose] == pytest.approx(real[purpose], rel=0.001)


def test_an_instance_tells_of_it() -> None:
    options = {"ctx-size": 512, "parallel": 2, "spec-type": ["ngram-simple"], "spec-ngram-simple-size-n": 3}
    with instance_loaded(generated("loops"), options) as instance:
        ask = {"prompt": CATS, "max_tokens": 60, "temperature": 0}
        answer = instance.post("/completion", ask)
        assert 0 < answer["timings"]["draft_n_accepted"] <= answer["timings"]["draft_n"]
        assert answer["generation_settings"]["speculative.types"] == "ngram-simple"
        assert all(slot["speculative"] for slot in instance.get("/slots"))
        off = instance.post("/completion", ask | {"speculative.n_max": 0})
        assert off["content"] == answer["content"]
        assert "draft_n" not in off["timings"]
        error = instance.post("/completion", ask | {"speculative.n_max": -1}, 400)["error"]
        assert error["param"] == "speculative.n_max"


def test_on_the_public_port() -> None:
    presets = f"""version = 1
[target]
model = {generated("target")}
c = 512
md = {generated("tiny")}
draft-max = 4
"""
    with Llamad(presets, "--models-memory-margin", "64") as daemon:
        answer = daemon.chat("target", CATS, max_tokens=40).json()
        assert answer["timings"]["draft_n"]
        need = daemon.model("target")["llamad"]["need"]
        assert need["minimum"]["host"] > 40 << 20
        page = requests.get(f"{daemon.url}/metrics", timeout=30).text
        assert 'llamad_model_drafted_tokens_total{model="target"}' in page


def test_an_instance_sleeps_and_wakes_with_its_draft_model_and_its_adapters() -> None:
    options = {
        "ctx-size": 512,
        "spec-draft-model": str(generated("tiny")),
        "lora": [str(generated("lora-a"))],
    }
    with instance_loaded(generated("target"), options) as instance:
        ask = {"prompt": CATS, "max_tokens": 30, "temperature": 0}
        instance.post("/lora-adapters", [{"id": 0, "scale": 0.5}])
        before = instance.post("/completion", ask)
        held = instance.ready["bytes"]["host"]
        assert sleep(instance)["bytes"]["host"] < held
        assert [entry["scale"] for entry in instance.get("/lora-adapters")] == [0.5]
        assert wake(instance)["bytes"]["host"] == pytest.approx(held, rel=0.1)
        after = instance.post("/completion", ask)
        assert after["content"] == before["content"]
        assert after["timings"]["draft_n"]
