"""Answers of recurrent and hybrid models against llama.cpp itself, one sequence, one token after another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamad.engine.vocabulary import Text
from tests.engine.live import Live, live
from tests.model.generated import generated

pytestmark = pytest.mark.model

STORY = "it was hot and they had some of it, but the fox was not in that one. "
# What is left of the best token's lead when logits differ in their last bits.
NEAR = 0.02
N_CTX = 1024


@pytest.fixture(scope="module", params=["mamba", "jamba"])
def model(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Live]]:
    path = generated(request.param)
    with live(path, n_ctx=N_CTX, n_parallel=3, n_ubatch=64, n_batch=64) as engine:
        yield path, engine


def test_several_at_once(model: tuple[Path, Live]) -> None:
    path, engine = model
    prompts = [engine.engine.tokenize(text) for text in (STORY, STORY * 4, "the fox", f"{STORY}the")]
    for prompt, answer in zip(prompts, answers(engine, prompts, 30), strict=True):
        assert_likeliest(path, prompt, answer)


def test_the_next_turns_of_a_conversation(model: tuple[Path, Live]) -> None:
    """Each goes on from what is there; another one between them, and one that parts from it, change nothing."""
    path, engine = model
    talk = engine.engine.tokenize(STORY * 3)
    for turn in ("and the", " with that", " or as it was"):
        (answer,) = answers(engine, [talk], 12)
        assert_likeliest(path, talk, answer)
        parted = [*talk[: len(talk) // 2], *engine.engine.tokenize(" but " + turn)]
        for prompt, other in zip([parted], answers(engine, [parted], 8), strict=True):
            assert_likeliest(path, prompt, other)
        talk = [*talk, *answer, *engine.engine.tokenize(turn)]


def test_the_same_prompt_again(model: tuple[Path, Live]) -> None:
    path, engine = model
    prompt = engine.engine.tokenize(STORY * 2)
    for _ in range(3):
        (answer,) = answers(engine, [prompt], 10)
        assert_likeliest(path, prompt, answer)


def answers(engine: Live, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Token ids of greedy answers to all prompts, asked at the same time."""
    found: dict[int, list[int]] = {}

    def note(text: Text) -> None:
        found.setdefault(text.id, []).extend(text.ids)

    engine.on_text = note
    ids = [engine.submit(prompt, count) for prompt in prompts]
    engine.wait(*ids)
    engine.on_text = lambda _: None
    answered = [[*found.get(id, []), *engine.finished(id).ids] for id in ids]
    assert all(answered)
    return answered


def assert_likeliest(path: Path, prompt: Sequence[int], answer: Sequence[int]) -> None:
    """Is each token of the answer the likeliest after all that stands before it?"""
    rows = logits_by_llama_cpp(path, [*prompt, *answer])
    for place, token in enumerate(answer, len(prompt)):
        row = rows[place - 1]
        assert row[token] > row.max() - NEAR, f"token {place - len(prompt)} of the answer"


def logits_by_llama_cpp(path: Path, tokens: Sequence[int]) -> list[np.ndarray]:
    """Logits after each token, by llama.cpp's own calls."""
    from llama_cpp import llama_cpp as lib

    from llamad.engine import llama

    lib.llama_log_set(llama._to_log, None)
    model: Any = lib.llama_model_load_from_file(os.fsencode(path), lib.llama_model_default_params())
    params = lib.llama_context_default_params()
    params.n_ctx = N_CTX
    context = lib.llama_init_from_model(model, params)
    n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    batch = lib.llama_batch_init(1, 0, 1)
    rows = []
    try:
        for position, token in enumerate(tokens):
            batch.n_tokens, batch.token[0], batch.pos[0] = 1, token, position
            batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 0, 1
            assert lib.llama_decode(context, batch) == 0
            rows.append(np.ctypeslib.as_array(lib.llama_get_logits(context), (n_vocab,)).copy())
    finally:
        lib.llama_batch_free(batch)
        lib.llama_free(context)
        lib.llama_model_free(model)
    return rows
