"""LoRA adapters on a tiny generated model: what they change, what they cost, and who gets which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from llamad.engine.vocabulary import AdapterFile, Adapters
from llamad.errors import ConfigError, LlamadError
from tests.engine.live import Live, live, loaded
from tests.harness import Llamad
from tests.model.generated import generated
from tests.model.test_instance_serving import Instance
from tests.model.test_instance_serving import loaded as instance_loaded
from tests.model.test_measure import Case, measured, really_loaded

pytestmark = pytest.mark.model

A: Adapters = ((0, 1.0),)
B: Adapters = ((1, 1.0),)
BOTH: Adapters = ((0, 0.5), (1, -0.5))
PROMPT = "the cat sat on the mat and "
PROMPTS = [f"{PROMPT}{number}" for number in range(4)]


def adapter_files() -> tuple[str, str]:
    return str(generated("lora-a")), str(generated("lora-b"))


@pytest.fixture(scope="module")
def tiny() -> Iterator[Live]:
    files = tuple(AdapterFile(path, scale) for path, scale in zip(adapter_files(), (1.0, 0.0), strict=True))
    with live(generated("tiny"), n_ctx=1024, n_parallel=4, adapters=files) as engine:
        yield engine


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    a, b = adapter_files()
    with instance_loaded(generated("tiny"), {"ctx-size": 512, "lora": [a], "lora-scaled": [f"{b}:0"]}) as it:
        yield it


def test_each_set_of_adapters_has_its_own_answer_and_always_the_same(tiny: Live) -> None:
    answers = {
        adapters: {tiny.ask(PROMPT, 16, adapters=adapters)[0] for _ in range(3)}
        for adapters in ((), A, B, BOTH)
    }
    assert all(len(texts) == 1 for texts in answers.values())
    assert len(set.union(*answers.values())) == 4


def test_together_each_gets_what_it_gets_alone(tiny: Live) -> None:
    """Greedy answers of a model of random weights have no near ties."""
    sets = ((), A, B, BOTH)
    alone = [
        tiny.ask(prompt, 24, adapters=adapters, cache_prompt=False)[0]
        for prompt, adapters in zip(PROMPTS, sets, strict=True)
    ]
    ids = [
        tiny.submit(prompt, 24, adapters=adapters, cache_prompt=False)
        for prompt, adapters in zip(PROMPTS, sets, strict=True)
    ]
    tiny.wait(*ids)
    assert [tiny.texts[id] for id in ids] == alone


def test_an_adapter_is_told_with_its_file(tiny: Live) -> None:
    assert [(adapter.path, adapter.scale) for adapter in tiny.engine.facts.adapters] == [
        (path, scale) for path, scale in zip(adapter_files(), (1.0, 0.0), strict=True)
    ]


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        ("tiny", "general.type"),
        ("missing", "there is no adapter"),
        ("lora-a", "does not exist in base model"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(
    adapter: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "missing.gguf" if adapter == "missing" else generated(adapter)
    # An adapter of a llama for a model that has other tensors, or is none at all.
    model = generated("mamba") if adapter == "missing" else generated("tiny")
    if adapter == "lora-a":
        path = tmp_path / "other.gguf"
        path.write_bytes(generated("lora-a").read_bytes().replace(b"ffn_up", b"ffn_ux"))
    with pytest.raises(LlamadError) as caught, loaded(model, n_ctx=256, adapters=(AdapterFile(str(path)),)):
        pass
    assert str(path) in caught.value.message
    assert reason in caught.value.message
    assert isinstance(caught.value, ConfigError) is (adapter == "missing")


def test_what_adapters_take_is_measured_before_they_are_loaded() -> None:
    case, path = Case("tiny", 1024, 4, "f16"), generated("tiny")
    a, b = adapter_files()
    found = measured(path, {**case.options, "lora": [a], "lora-scaled": [f"{b}:0.5"]})
    predicted = found["maximum"]["bytes"]["host"]
    real = really_loaded(case, path, adapters=[(a, 1.0), (b, 0.5)])["host"]
    assert predicted["adapters"] == real["adapters"] > 0
    for purpose in ("weights", "kv", "compute"):
        assert predicted[purpose] == pytest.approx(real[purpose], rel=0.001)


def test_the_list_of_adapters_and_a_change_of_it(instance: Instance) -> None:
    a, b = adapter_files()
    told = {"task_name": "", "prompt_prefix": ""}
    entries = [{"id": 0, "path": a, "scale": 1.0, **told}, {"id": 1, "path": b, "scale": 0.0, **told}]
    assert instance.get("/lora-adapters") == entries
    ask = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0}

    def answer(**fields: Any) -> str:
        return str(instance.post("/completion", ask | fields)["content"])

    with_a = answer()
    with_b, with_none = answer(lora=[{"id": 1, "scale": 1}]), answer(lora=[{"id": 0, "scale": 0}])
    assert len({with_a, with_b, with_none}) == 3
    assert answer(lora=[]) == with_a, "an empty list says nothing"
    assert instance.post("/lora-adapters", [{"id": 1, "scale": 1.0}]) == {"success": True}
    assert [entry["scale"] for entry in instance.get("/lora-adapters")] == [0.0, 1.0]
    assert answer() == with_b
    assert answer(lora=[{"id": 0, "scale": 1}]) == with_a
    assert instance.post("/lora-adapters", []) == {"success": True}
    assert answer() == with_none
    settings = instance.post("/completion", ask | {"lora": [{"id": 1, "scale": 0.5}]})["generation_settings"]
    assert settings["lora"] == [{"id": 1, "scale": 0.5}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "an object"),
        ([{"scale": 1}], "adapters[0].id"),
        ([{"id": 2, "scale": 1}], "adapter 2: this model has 2"),
    ],
    ids=str,
)
def test_a_change_that_makes_no_sense_changes_nothing(instance: Instance, body: Any, words: str) -> None:
    before = instance.get("/lora-adapters")
    assert words in instance.post("/lora-adapters", body, 400)["error"]["message"]
    assert instance.get("/lora-adapters") == before


def test_a_request_that_names_no_adapter_of_the_model_is_400(instance: Instance) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "lora": [{"id": 7, "scale": 1}]}
    error = instance.post("/v1/chat/completions", body, 400)["error"]
    assert (error["kind"], error["param"]) == ("bad-field", "lora")


def test_on_the_public_port() -> None:
    a, _ = adapter_files()
    presets = f"version = 1\n[tiny]\nmodel = {generated('tiny')}\nc = 512\nlora = {a}\n"
    with Llamad(presets, "--lora-init-without-apply") as daemon:
        assert daemon.model("tiny")["status"]["args"][3:] == [
            *("--ctx-size", "512", "--lora", a, "--lora-init-without-apply")
        ]
        refused = daemon.post("/lora-adapters?model=tiny", [{"id": 0, "scale": 1}])
        assert refused.status_code == 409, "an order is no reason to load a model"
        ask = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
        plain = daemon.post("/completion", ask).json()["content"]
        assert daemon.post("/lora-adapters?model=tiny", [{"id": 0, "scale": 1}]).json() == {"success": True}
        assert requests.get(f"{daemon.url}/lora-adapters?model=tiny", timeout=30).json()[0]["scale"] == 1.0
        assert daemon.post("/completion", ask).json()["content"] != plain
