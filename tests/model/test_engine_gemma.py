"""The engine on Gemma 3: a large vocabulary, and a sliding window whose forgetting must not be reused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from llamad.engine.backend import Entry
from llamad.engine.vocabulary import SamplingParams
from tests.engine.live import Live, full_chain_and_prefiltered, live

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def gem(gemma: Path) -> Iterator[Live]:
    with live(gemma, n_ctx=2048, n_parallel=4) as engine:
        yield engine


def test_what_is_known_of_the_model(gem: Live) -> None:
    facts = gem.engine.facts
    assert (facts.architecture, facts.n_vocab, facts.chat_template) == ("gemma3", 262144, None)
    assert (facts.bos_token, facts.add_bos) == ("<bos>", True)
    assert gem.backend.n_swa == 512
    assert gem.engine.tokenize("Hello")[0] == 2
    assert gem.engine.tokenize("Hello", add_special=False)[0] != 2


def test_all_tokens_that_end_an_answer_are_known(gem: Live) -> None:
    assert set(gem.backend.eog_tokens()) >= {1, 106}
    assert all(gem.backend.is_eog(token) for token in gem.backend.eog_tokens())


def test_four_at_once_answer_their_own_prompts(gem: Live) -> None:
    words = ("apple", "river", "seven", "winter")
    ids = {word: gem.submit(" ".join([word] * 12), 5) for word in words}
    gem.wait(*ids.values())
    assert gem.engine.stats().generating_max == 4
    for word, id in ids.items():
        assert gem.texts[id].split()[:2] == [word, word]


def test_prefiltered_draws_equal_the_full_chain(gem: Live) -> None:
    gem.settle()
    backend = gem.backend
    backend.clear(0)
    backend.decode([Entry(0, 0, backend.tokenize("Once upon a time", True, True), True)])
    row = backend.logits(0).copy()
    backend.clear(0)
    full, few = full_chain_and_prefiltered(backend, row, SamplingParams(temperature=1.3), draws=100, seed=5)
    assert full == few
    assert len(set(full)) > 3


def test_a_prefix_whose_window_is_gone_is_not_reused(gemma: Path) -> None:
    # One slot: the window's cells are 512 + one micro-batch, so 1,200 tokens overwrite the first of them.
    with live(gemma, n_ctx=2048, n_parallel=1, n_ubatch=256) as engine:
        tokens = engine.engine.tokenize(" ".join(f"number {value}" for value in range(400)))[:1200]
        assert len(tokens) == 1200
        assert engine.ask(tokens, 1)[1].timings.cached_tokens == 0
        assert engine.ask([*tokens, 5], 1)[1].timings.cached_tokens == 1200
        assert engine.backend.pos_min(0) > 0
        assert engine.ask([*tokens[:300], 7], 1)[1].timings.cached_tokens == 0


def test_answers_after_a_return_into_the_window_are_right(gem: Live) -> None:
    gem.settle()
    backend = gem.backend
    tokens = gem.engine.tokenize(" ".join(f"item {value}" for value in range(80)))[:200]
    fresh, _ = gem.ask(tokens, 8, cache_prompt=False)
    gem.ask([*tokens, *tokens[:100]], 1)
    reused, end = gem.ask(tokens, 8)
    assert end.timings.cached_tokens == 199
    assert reused == fresh
    assert np.isfinite(backend.logits(0)).all()


def test_several_answers_to_a_prompt_longer_than_the_window(gem: Live) -> None:
    """The copy of a sequence has its window, too; four of them need more cells than the window's cache may have."""
    gem.settle()
    prompt = gem.engine.tokenize(" ".join(f"item {value}," for value in range(240)))[:700]
    assert len(prompt) == 700
    alone, _ = gem.ask(prompt, 12, cache_prompt=False)
    first = gem.last_id + 1
    ids = [gem.submit(prompt, 12, family=first) for _ in range(4)]
    gem.wait(*ids)
    assert {gem.texts[id] for id in ids} == {alone}
    assert all(gem.finished(id).timings.cached_tokens >= 699 for id in ids[1:])
