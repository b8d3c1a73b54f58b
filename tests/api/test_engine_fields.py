"""Fields of a request about the engine's ways: adapters, several answers, speculation."""

from __future__ import annotations

from typing import Any

import pytest

from llamad.api.generation import Generation
from llamad.engine.vocabulary import SEED_RANDOM, SamplingParams, Speculative
from tests.api.test_parsing import chat, completion, refusal


@pytest.mark.parametrize(
    ("value", "adapters"),
    [
        (None, None),
        ([], None),
        ([{"id": 1, "scale": 0.5}, {"id": 0, "scale": 2}], ((0, 2.0), (1, 0.5))),
        ([{"id": 0, "scale": -1.5}], ((0, -1.5),)),
        ([{"id": 0}], ()),
        ([{"id": 3, "scale": 0.0}], ()),
    ],
    ids=str,
)
def test_adapters_of_a_request(value: Any, adapters: Any) -> None:
    assert chat(lora=value).generation.adapters == adapters


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({}, "lora"),
        ("0", "lora"),
        (0, "lora"),
        ([0], "lora[0]"),
        ([{"id": 0, "scale": 1}, {"scale": 1}], "lora[1].id"),
        ([{"id": -1, "scale": 1}], "lora[0].id"),
        ([{"id": 0.5, "scale": 1}], "lora[0].id"),
        ([{"id": 0, "scale": "1"}], "lora[0].scale"),
        ([{"id": 0, "scale": 1e9}], "lora[0].scale"),
        ([{"id": 0, "scale": 1}, {"id": 0, "scale": 2}], "lora[1]"),
        ([{"id": id, "scale": 1} for id in range(65)], "lora"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_adapters_that_are_none(value: Any, place: str) -> None:
    error = refusal(chat, lora=value)
    assert (error.status, error.details) == (400, {"param": place})


# ---- several answers


def test_each_answer_of_a_family_draws_from_the_next_seed() -> None:
    generation = completion("x", n=3, seed=7, id_slot=1).generation
    requests = [generation.request(5 + place, (1,), 5, place) for place in range(3)]
    assert [request.sampling.seed for request in requests] == [7, 8, 9]
    assert [request.family for request in requests] == [5, 5, 5]
    assert [request.is_sibling for request in requests] == [False, True, True]
    assert [request.id_slot for request in requests] == [1, -1, -1]


@pytest.mark.parametrize("seed", [SEED_RANDOM, SEED_RANDOM - 1])
def test_the_next_seed_is_never_one_to_draw_unless_all_are(seed: int) -> None:
    request = Generation(sampling=SamplingParams(seed=seed), n=2).request(2, (1,), 1, 1)
    assert (request.sampling.seed == SEED_RANDOM) == (seed == SEED_RANDOM)


@pytest.mark.parametrize(("fields", "n"), [({"n": 2}, 2), ({"n_cmpl": 3}, 3), ({"n": 2, "n_cmpl": 3}, 3)])
def test_how_many_answers(fields: dict[str, Any], n: int) -> None:
    assert chat(**fields).generation.n == n


@pytest.mark.parametrize(
    ("prompt", "fields", "words"),
    [
        ("x", {"n": 0}, ["'n'", "1 to 128"]),
        ("x", {"n_cmpl": 129}, ["'n_cmpl'", "1 to 128"]),
        ("x", {"n": 1.5}, ["'n'", "whole number"]),
        (["x"] * 3, {"n": 50}, ["50 answers", "3 prompts", "128"]),
    ],
)
def test_too_many_answers_are_refused(prompt: Any, fields: dict[str, Any], words: list[str]) -> None:
    message = refusal(completion, prompt, **fields).message
    assert all(word in message for word in words)


def test_a_requests_own_limits_of_speculation() -> None:
    assert chat().generation.speculative is None
    fields = {"speculative.n_max": 5, "speculative.p_min": 0.5}
    assert chat(**fields).generation.speculative == Speculative(5, None, 0.5)
    assert chat(**{"speculative.n_max": 0}).generation.speculative == Speculative(0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_max", -1), ("n_max", 1025), ("n_max", "5"), ("n_min", 0.5), ("p_min", 1.1), ("p_min", True)],
)
def test_limits_of_speculation_that_are_none(name: str, value: Any) -> None:
    error = refusal(chat, **{f"speculative.{name}": value})
    assert (error.status, error.details) == (400, {"param": f"speculative.{name}"})
