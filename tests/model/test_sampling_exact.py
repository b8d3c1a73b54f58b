"""Our sampling against llama.cpp's own samplers, all in one C chain over the whole vocabulary: the same tokens, every time.

The logits are made up, so the model only lends its vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamad.engine.narrow import Row
from llamad.engine.sampling import Sampler
from llamad.engine.stages import recipe
from llamad.engine.vocabulary import SamplingParams, Wanted
from tests.engine.live import loaded

pytestmark = pytest.mark.model

N_CTX = 512
STEPS = 40
PROMPT = "one two three four, one two three four, one two three"
ORDERS = {
    "reversed": ("temperature", "xtc", "min_p", "top_p", "typ_p", "top_k", "top_n_sigma", "dry", "penalties"),
    "short": ("top_p", "temperature"),
    "twice": ("top_k", "temperature", "top_k"),
    "none": (),
    "edits-in-between": ("dry", "top_k", "penalties", "temperature"),
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "greedy": {"temperature": 0.0},
    "no-truncation": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "min-p-only": {"top_k": 0, "top_p": 1.0, "min_p": 0.1},
    "min-keep": {"top_k": 0, "min_p": 0.5, "min_keep": 5},
    "top-n-sigma": {"top_n_sigma": 1.5, "temperature": 2.0},
    "typical": {"typical_p": 0.7},
    "typical-cold": {"typical_p": 0.7, "temperature": 0.0},
    "xtc": {"xtc_probability": 0.7, "xtc_threshold": 0.02},
    "xtc-cold": {"xtc_probability": 0.7, "xtc_threshold": 0.02, "temperature": 0.0},
    "penalties": {
        "repeat_penalty": 1.3,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.2,
        "repeat_last_n": 20,
    },
    "penalties-of-all": {"repeat_penalty": 1.3, "repeat_last_n": -1},
    "dry": {"dry_multiplier": 2.0, "dry_penalty_last_n": -1, "dry_sequence_breakers": ("\n", "four")},
    "dry-and-penalties-greedy": {"dry_multiplier": 2.0, "repeat_penalty": 1.3, "temperature": 0.0},
    "dynamic-temperature": {"dynatemp_range": 0.7, "dynatemp_exponent": 1.5},
    "dynamic-temperature-cold": {"temperature": 0.0, "dynatemp_range": 0.7},
    "mirostat": {"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.2},
    "mirostat-2": {"mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.2},
    "adaptive-p": {"samplers": ("min_p", "adaptive_p"), "adaptive_target": 0.4},
    "bias": {"logit_bias": ((100, 8.0), (200, float("-inf")))},
    **{
        f"order-{name}": {
            "samplers": order,
            "repeat_penalty": 1.2,
            "dry_multiplier": 1.0,
            "xtc_probability": 0.5,
            "top_n_sigma": 2.0,
            "typical_p": 0.8,
        }
        for name, order in ORDERS.items()
    },
}


@pytest.fixture(scope="module")
def backend(smollm2: Path) -> Iterator[Any]:
    with loaded(smollm2, n_ctx=N_CTX, n_parallel=1) as backend:
        yield backend


def rows(n_vocab: int, prompt: list[int]) -> list[Row]:
    """Few likely tokens, those of the prompt among them, so that repetitions happen."""
    random = np.random.default_rng(3)
    likely = np.array(sorted({*prompt, *range(100, 160), 200}))
    made = []
    for _ in range(STEPS):
        row = random.normal(size=n_vocab).astype(np.float32)
        row[likely] += random.normal(5.0, 2.0, likely.size).astype(np.float32)
        made.append(row)
    return made


def reference(backend: Any, params: SamplingParams, prompt: list[int], logits: list[Row]) -> list[int]:
    """llama-server's way: bias, then one chain with all stages, which is told of every token."""
    plan = recipe(params, 11, N_CTX)
    greedy = () if plan.chain else tuple(recipe(SamplingParams(top_k=1), 11, N_CTX).chain)
    chain = backend.chain((*plan.edits, *plan.chain, *greedy))
    for token in prompt:
        chain.accept(token)
    tokens = []
    for row in logits:
        row = row.copy()
        for token, bias in params.logit_bias:
            row[token] += bias
        tokens.append(chain.draw(row, None))
        chain.accept(tokens[-1])
    return tokens


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES.keys())
def test_the_same_tokens_as_llama_cpp(backend: Any, fields: dict[str, Any]) -> None:
    params = SamplingParams(**fields)
    prompt = backend.tokenize(PROMPT, True, True)
    logits = rows(backend.facts.n_vocab, prompt)
    sampler = Sampler(
        params, 11, backend.chain, history=prompt, n_ctx=N_CTX, wanted=Wanted(3, after_sampling=True)
    )
    tokens = []
    for row in logits:
        choice = sampler.sample(row.copy())
        assert choice.ranked is not None
        assert 0 < choice.ranked.value <= 1
        assert choice.ranked.top == tuple(sorted(choice.ranked.top, key=lambda pair: -pair[1]))
        tokens.append(choice.token)
        sampler.accept(choice.token)
    assert tokens == reference(backend, params, prompt, logits)


def test_dry_and_penalties_change_what_is_said(backend: Any) -> None:
    prompt = backend.tokenize(PROMPT, True, True)
    logits = rows(backend.facts.n_vocab, prompt)
    plain = reference(backend, SamplingParams(temperature=0.0), prompt, logits)
    for fields in ({"dry_multiplier": 2.0, "dry_allowed_length": 0}, {"repeat_penalty": 1.5}):
        assert reference(backend, SamplingParams(temperature=0.0, **fields), prompt, logits) != plain


def test_the_same_dry_is_looked_up_once_and_remembers_for_itself(backend: Any) -> None:
    stage = recipe(SamplingParams(dry_multiplier=3.0, dry_allowed_length=1), 1, N_CTX).edits
    first, second = backend.chain(stage), backend.chain(stage)
    a, b = backend.tokenize(" apple pear", False, False)
    for token in (a, b, a):
        first.accept(token)
    row = np.zeros(backend.facts.n_vocab, np.float32)
    ids = np.array([a, b])
    first.adjust(row, ids)
    assert row[b] < 0 == row[a]
    untouched = np.zeros_like(row)
    second.adjust(untouched, ids)
    assert not untouched.any()
