"""What an instance tells of itself."""

from __future__ import annotations

import dataclasses

from llamad.api.about import Endpoints, metrics, models, props, slot
from llamad.api.generation import Generation
from llamad.engine.vocabulary import EngineStats, GenerateRequest, ModelFacts, SamplingParams, SlotView

FACTS = ModelFacts(
    "llama",
    "a model",
    1,
    2,
    512,
    128,
    2048,
    300,
    64,
    4,
    None,
    "<s>",
    "</s>",
    True,
    ftype="Q4_0",
    vocab_type=2,
)


def test_props() -> None:
    document = props(
        FACTS, Generation(max_tokens=7), alias="m", path="/m.gguf", template="T", capabilities={}, build="b1"
    )
    assert document["default_generation_settings"]["n_ctx"] == 128
    assert document["default_generation_settings"]["params"]["n_predict"] == 7
    assert (document["total_slots"], document["model_alias"], document["chat_template"]) == (4, "m", "T")
    assert document["model_ftype"] == "Q4_0"
    assert "chat_template_tool_use" not in document
    apart = props(
        FACTS, Generation(), alias="m", path="", template="T", tools_template="U", capabilities={}, build="b"
    )
    assert apart["chat_template_tool_use"] == "U"
    assert (document["endpoint_slots"], document["endpoint_metrics"]) == (True, False)


def test_props_tell_which_routes_are_open() -> None:
    endpoints = Endpoints(slots=False, props=True, metrics=True)
    document = props(
        FACTS,
        Generation(),
        alias="m",
        path="/m.gguf",
        template="T",
        capabilities={},
        build="b1",
        endpoints=endpoints,
    )
    shown = [document[f"endpoint_{name}"] for name in ("slots", "props", "metrics")]
    assert shown == [False, True, True]


def test_a_slot_tells_of_its_request() -> None:
    asked = GenerateRequest(9, (1,) * 10, max_tokens=8, sampling=SamplingParams(temperature=0.5))
    busy = slot(SlotView(1, "generating", 128, 9, 10, 4, 5, asked))
    assert (busy["is_processing"], busy["id_task"]) == (True, 9)
    assert busy["next_token"] == [
        {"has_next_token": True, "has_new_line": False, "n_remain": 3, "n_decoded": 5}
    ]
    assert busy["n_prompt_tokens"] == 15
    assert (busy["n_prompt_tokens_processed"], busy["n_prompt_tokens_cache"]) == (6, 4)
    assert (busy["params"]["temperature"], busy["params"]["n_predict"]) == (0.5, 8)


def test_an_idle_slot_tells_what_was_asked_last_and_has_nothing_left_to_do() -> None:
    asked = GenerateRequest(9, (1,) * 10, max_tokens=8)
    idle = slot(SlotView(1, "idle", 128, None, 0, 12, 0, asked))
    assert (idle["is_processing"], idle["params"]["n_predict"], idle["n_prompt_tokens"]) == (False, 8, 12)
    assert (idle["n_prompt_tokens_processed"], idle["n_prompt_tokens_cache"]) == (0, 0)
    assert idle["next_token"] == [
        {"has_next_token": False, "has_new_line": False, "n_remain": -1, "n_decoded": 0}
    ]


def test_an_idle_slot_has_no_request() -> None:
    idle = slot(SlotView(0, "idle", 128, None, 0, 3, 0))
    assert (idle["is_processing"], idle["next_token"][0]["n_remain"]) == (False, -1)
    assert "params" not in idle


def test_the_one_model() -> None:
    document = models(FACTS, name="m", created=5)
    (data,) = document["data"]
    assert (data["id"], data["created"], data["meta"]["n_vocab"], data["meta"]["ftype"]) == (
        "m",
        5,
        300,
        "Q4_0",
    )
    assert document["models"][0]["name"] == "m"


def test_metrics_are_prometheus_text() -> None:
    nothing = EngineStats(*[0] * 11)
    stats = dataclasses.replace(nothing, steps=4, busy_steps=10, prompt_tokens=50, prompt_ms=500.0)
    lines = metrics(stats).splitlines()
    assert "# TYPE llamacpp:n_decode_total counter" in lines
    assert "llamacpp:n_busy_slots_per_decode 2.5" in lines
    assert "llamacpp:prompt_tokens_seconds 100" in lines
    assert "llamacpp:prompt_seconds_total 0.5" in lines
    assert len(lines) % 3 == 0
    assert "llamacpp:predicted_tokens_seconds 0" in metrics(nothing).splitlines()
