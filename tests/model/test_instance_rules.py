"""Rules, likelihoods and samplers over HTTP on a real model, partly through OpenAI's own client."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import jsonschema
import openai
import pydantic
import pytest
import requests

from tests.model.test_instance_serving import TOKEN, Instance, loaded, text_of

pytestmark = pytest.mark.model

ASK = [{"role": "user", "content": "Describe the weather in Warsaw today as JSON."}]
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 20},
        "celsius": {"type": "integer", "minimum": -40, "maximum": 50},
        "sky": {"enum": ["clear", "cloudy", "rain"]},
        "hours": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["city", "celsius", "sky", "hours"],
}
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "weather", "strict": True, "schema": {**WEATHER, "additionalProperties": False}},
}


@pytest.fixture(scope="module")
def smol(smollm2: Path) -> Iterator[Instance]:
    with loaded(smollm2, {"ctx-size": 2048, "parallel": 4}) as instance:
        yield instance


@pytest.fixture
def client(smol: Instance) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{smol.url}/v1", api_key=TOKEN, max_retries=0, timeout=120) as client:
        yield client


def chat(smol: Instance, **fields: Any) -> Any:
    return smol.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 200, "seed": 3, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": FORMAT, "temperature": 0},
        {"response_format": FORMAT, "temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"response_format": FORMAT, "temperature": 1.2, "mirostat": 2},
        {"response_format": {"type": "json_object", "schema": WEATHER}},
        {"json_schema": WEATHER, "dry_multiplier": 0.8},
    ],
    ids=lambda fields: str(sorted(fields)),
)
def test_an_answer_conforms_to_its_schema(smol: Instance, fields: dict[str, Any]) -> None:
    choice = chat(smol, **fields)["choices"][0]
    jsonschema.validate(json.loads(choice["message"]["content"]), WEATHER)
    assert choice["finish_reason"] == "stop"


def test_four_at_once_streamed_and_not_with_and_without_rules(smol: Instance) -> None:
    ruled = {
        "messages": ASK,
        "max_tokens": 200,
        "response_format": FORMAT,
        "logprobs": True,
        "top_logprobs": 2,
    }
    free = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 30}
    with ThreadPoolExecutor(4) as pool:
        texts = list(
            pool.map(
                lambda seed: text_of(
                    smol.stream("/v1/chat/completions", {**(free if seed % 2 else ruled), "seed": seed})
                ),
                range(4),
            )
        )
    for text in texts[::2]:
        jsonschema.validate(json.loads(text), WEATHER)
    for text in texts[1::2]:
        assert not text.startswith("{")


def test_any_object(smol: Instance) -> None:
    for seed in range(3):
        fields = {"response_format": {"type": "json_object"}, "temperature": 0.7, "max_tokens": 60}
        choice = chat(smol, **fields, seed=seed)["choices"][0]
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["message"]["content"]), dict)
        assert choice["message"]["content"].startswith("{")


def test_openais_client_gets_its_own_types(client: openai.OpenAI) -> None:
    class Step(pydantic.BaseModel):
        kind: Literal["walk", "run"]
        metres: int

    class Plan(pydantic.BaseModel):
        title: str = pydantic.Field(max_length=20)
        steps: list[Step] = pydantic.Field(max_length=2)
        note: Literal["new"] | None

    answer = client.chat.completions.parse(
        model="tiny", messages=ASK, response_format=Plan, max_tokens=400, seed=1, temperature=0
    )
    assert isinstance(answer.choices[0].message.parsed, Plan)


def test_a_grammar(smol: Instance) -> None:
    grammar = 'root ::= ("yes" | "no") ", because " [a-z ]{5,40} "."'
    answer = chat(smol, grammar=grammar, n_probs=2)["choices"][0]
    text = answer["message"]["content"]
    assert re.fullmatch(r"(yes|no), because [a-z ]{5,40}\.", text)
    assert answer["finish_reason"] == "stop"
    assert "".join(entry["token"] for entry in answer["logprobs"]["content"]) == text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/completion"])
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"json_schema": {"type": "objekt"}}, "objekt"),
        ({"json_schema": {"type": "string", "pattern": "(["}}, "unclosed"),
        ({"json_schema": {"$ref": "#"}}, "no answer can conform"),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"grammar": 'root ::= "x" foo'}, "no rule 'foo'"),
        ({"grammar": "nonsense"}, "expected '::='"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_rules_that_cannot_be_honoured_are_refused_before_any_byte(
    smol: Instance, fields: dict[str, Any], words: str, path: str, stream: bool
) -> None:
    body = {"messages": ASK, "prompt": "x", "stream": stream, "max_tokens": 5, **fields}
    error = smol.post(path, body, status=400)["error"]
    assert words in error["message"]
    assert error["kind"] in ("unsupported-schema", "unsupported-grammar")


def test_the_process_survives_the_worst_rules(smol: Instance) -> None:
    chained = "\n".join(f"a{i} ::= a{i + 1}" for i in range(9000))
    links = {f"a{i}": {"properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}}} for i in range(4000)}
    for fields in (
        {"grammar": f'root ::= a0\n{chained}\na9000 ::= "x"'},
        {"json_schema": {"$ref": "#/$defs/a0", "$defs": {**links, "a4000": {"type": "string"}}}},
        {"grammar": 'root ::= (((("a"{2000}){2000}){2000}){2000}){2000}'},
        {"json_schema": {"type": "string", "pattern": "^(((a{1,99}){1,99}){1,99}){1,99}$"}},
        {"grammar": "root ::= " + "(" * 50_000},
        {"json_schema": {"type": "array", "minItems": 10**9}},
    ):
        answer = requests.post(
            f"{smol.url}/v1/completions",
            json={"prompt": "x", "max_tokens": 4, **fields},
            headers=smol.headers,
            timeout=60,
        )
        assert answer.status_code in (200, 400, 500), answer.text
        assert isinstance(answer.json(), dict)
    assert chat(smol, max_tokens=3)["choices"][0]["message"]["content"]


# ---- likelihoods


def check(entry: dict[str, Any], n_top: int) -> None:
    assert bytes(entry["bytes"]).decode(errors="ignore") == entry["token"].replace("�", "")
    assert math.isfinite(entry["logprob"])
    assert entry["logprob"] <= 0
    values = [top["logprob"] for top in entry["top_logprobs"]]
    assert len(values) == n_top
    assert values == sorted(values, reverse=True)


def test_logprobs_of_a_chat_streamed_and_whole(smol: Instance) -> None:
    body = {"messages": ASK, "max_tokens": 12, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    whole = smol.post("/v1/chat/completions", body)["choices"][0]
    told = whole["logprobs"]["content"]
    assert len(told) == 12
    for entry in told:
        check(entry, 3)
        assert entry["id"] == entry["top_logprobs"][0]["id"]
    assert "".join(entry["token"] for entry in told) == whole["message"]["content"]
    chunks = [event for event in smol.stream("/v1/chat/completions", body) if event != "[DONE]"]
    streamed = [
        entry
        for chunk in chunks
        for choice in chunk["choices"]
        for entry in choice.get("logprobs", {}).get("content", [])
    ]
    assert [entry["id"] for entry in streamed] == [entry["id"] for entry in told]


def test_openais_client_reads_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=ASK, max_tokens=3, logprobs=True, top_logprobs=2, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs
    assert logprobs.content
    assert [len(token.top_logprobs) for token in logprobs.content] == [2, 2, 2]
    completion = client.completions.create(
        model="tiny", prompt="One, two,", max_tokens=3, logprobs=2, temperature=0
    )
    columns = completion.choices[0].logprobs
    assert columns
    assert columns.tokens
    assert "".join(columns.tokens) == completion.choices[0].text
    assert columns.text_offset == [0, len(columns.tokens[0]), len("".join(columns.tokens[:2]))]


def test_likelihoods_of_split_characters(smol: Instance) -> None:
    body = {"prompt": "x", "grammar": 'root ::= "🦊ż日本🦄"', "n_probs": 1}
    answer = smol.post("/completion", body)
    told = answer["completion_probabilities"]
    assert b"".join(bytes(entry["bytes"]) for entry in told).decode() == answer["content"] == "🦊ż日本🦄"
    assert len(told) > 5


def test_probabilities_after_sampling(smol: Instance) -> None:
    body = {"prompt": "One, two,", "n_predict": 4, "n_probs": 5, "post_sampling_probs": True, "top_k": 3}
    for entry in smol.post("/completion", body)["completion_probabilities"]:
        chances = [top["prob"] for top in entry["top_probs"]]
        assert 1 <= len(chances) <= 3
        assert sum(chances) == pytest.approx(1.0, abs=1e-4)
        assert entry["prob"] in chances


def test_a_one_token_answer_with_everything(smol: Instance) -> None:
    body = {"prompt": "x", "n_predict": 1, "n_probs": 3, "grammar": 'root ::= "a"+', "temperature": 0}
    answer = smol.post("/completion", body)
    assert set(answer["content"]) == {"a"}
    assert len(answer["completion_probabilities"]) == 1
    assert all(math.isfinite(value) for value in answer["timings"].values())


# ---- samplers


def test_settings_are_shown_as_they_were_used(smol: Instance) -> None:
    fields = {"mirostat": 2, "samplers": "kt", "dry_sequence_breakers": ["!"], "xtc_probability": 0.1}
    shown = smol.post("/completion", {"prompt": "x", "n_predict": 1, **fields})["generation_settings"]
    assert shown["samplers"] == ["top_k", "temperature"]
    assert (shown["mirostat"], shown["dry_sequence_breakers"], shown["xtc_probability"]) == (2, ["!"], 0.1)


def test_a_seed_repeats_its_draws_whatever_else_runs(smol: Instance) -> None:
    fields = {"temperature": 1.5, "xtc_probability": 0.5, "dry_multiplier": 0.8, "typical_p": 0.9}
    body = {"prompt": "Once upon a time", "n_predict": 20, "seed": 7, "cache_prompt": False, **fields}
    alone = smol.post("/completion", body)["content"]
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(smol.post, "/completion", {**body, "seed": seed}) for seed in (1, 2, 3)]
        again = pool.submit(smol.post, "/completion", body).result()["content"]
        assert len({other.result()["content"] for other in others} | {alone}) == 4
    # How a batch is cut may move logits a little, so a late token may differ; the draws do not.
    assert again[:20] == alone[:20]
