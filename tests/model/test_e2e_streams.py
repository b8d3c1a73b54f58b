"""Eight streams at once through the port: one batch, eight answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.harness import Llamad, events

pytestmark = pytest.mark.model

# What the model is sure of, each with a beginning that none of the others has.
PROMPTS = {
    "10, 20, 30, 40,": ["50", "60"],
    "100, 200, 300, 400,": ["500", "600"],
    "1, 2, 3, 4, 5,": ["6", "7"],
    "2, 4, 6, 8, 10,": ["12", "14"],
    "1990, 1991, 1992, 1993,": ["1994", "1995"],
    "A, B, C, D, E,": ["F", "G"],
    "a, b, c, d, e, f, g,": ["h", "i"],
    "I, II, III, IV,": ["V", "VI"],
}


@pytest.fixture(scope="module")
def daemon(smollm2: Path) -> Iterator[Llamad]:
    with Llamad(
        f"version = 1\n[smol]\nmodel = {smollm2}\nc = 2048\nnp = 8\nload-on-startup = true\n"
    ) as daemon:
        daemon.wait_state("smol", "loaded")
        yield daemon


def complete(daemon: Llamad, prompt: str, **fields: Any) -> str:
    body = {"model": "smol", "prompt": prompt, "stream": True, "ignore_eos": True, **fields}
    seen = list(events(daemon.post("/v1/completions", body, stream=True)))
    assert seen[-1] == "[DONE]"
    return "".join(event["choices"][0]["text"] for event in seen[:-1] if event["choices"])


def stats(daemon: Llamad) -> dict[str, int]:
    (row,) = daemon.ps("instance", "smol")
    return row["stats"]


def test_each_answers_its_own_prompt_and_all_share_the_steps(daemon: Llamad) -> None:
    tokens = 32
    before = stats(daemon)
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        answers = list(
            pool.map(lambda prompt: complete(daemon, prompt, max_tokens=tokens, temperature=0), PROMPTS)
        )
    assert [re.findall(r"\w+", answer)[:2] for answer in answers] == list(PROMPTS.values())

    wanted = before["predicted_tokens"] + tokens * len(PROMPTS)
    after = wait_until(lambda: (seen := stats(daemon))["predicted_tokens"] >= wanted and seen)
    assert after["generating_max"] == len(PROMPTS)
    # Alone they would have taken a step for each token.
    assert after["steps"] - before["steps"] < tokens * len(PROMPTS) / 3


def test_a_seed_makes_an_answer_again(daemon: Llamad) -> None:
    def told(seed: int) -> str:
        return complete(
            daemon,
            "Once upon a time",
            max_tokens=24,
            temperature=1.0,
            seed=seed,
            cache_prompt=False,
            id_slot=0,
        )

    first, second, other = told(7), told(7), told(8)
    assert first == second != other
