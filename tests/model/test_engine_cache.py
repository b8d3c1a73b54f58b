"""States in the host's memory on real models: what comes back from there answers as what was never away."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamad.engine.keeping import Keeping
from llamad.engine.vocabulary import SamplingParams, Text, Wanted
from tests.engine.live import live
from tests.model.generated import generated

pytestmark = pytest.mark.model

RAM = Keeping(ram_bytes=256 << 20, checkpoint_step=128)
TOPICS = ("the sea and its ships", "the mountains and their snow", "the city and its people")


def prompts(n_sentences: int) -> list[str]:
    return [f"A text about {topic}. " + f"It is about {topic}. " * n_sentences for topic in TOPICS]


@pytest.mark.parametrize("name", ["smollm2", "gemma", "tiny", "mamba", "jamba"])
def test_conversations_that_take_turns_in_one_slot(name: str, request: pytest.FixtureRequest) -> None:
    real = name in ("smollm2", "gemma")
    path: Path = request.getfixturevalue(name) if real else generated(name)
    with live(path, keeping=RAM, n_ctx=1024, n_parallel=1) as engine:
        tokens = [engine.engine.tokenize(prompt)[:200] for prompt in prompts(30)]
        first = [engine.ask(each, 8)[0] for each in tokens]
        longer = [[*each, *engine.engine.tokenize(" and more", False)] for each in tokens]
        back = [engine.ask(each, 8) for each in longer]
        # Where the memory cannot be cut back, the tokens that were sampled are in the way.
        assert all(
            end.timings.cached_tokens >= len(each) - 4 for each, (_, end) in zip(tokens, back, strict=True)
        )
        fresh = [engine.ask(each, 8, cache_prompt=False)[0] for each in longer]
        assert [text for text, _ in back] == fresh
        again = [engine.ask(each, 8) for each in tokens]
        assert [text for text, _ in again] == first
        assert all(
            end.timings.cached_tokens >= len(each) - 4 for each, (_, end) in zip(tokens, again, strict=True)
        )


@pytest.mark.parametrize("name", ["gemma", "jamba"])
def test_a_seeds_likelihoods_are_the_same_whatever_of_the_prompt_is_remembered(
    name: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(name) if name == "gemma" else generated(name)
    with live(path, keeping=RAM, n_ctx=512, n_parallel=1) as engine:
        said: list[Text] = []
        engine.on_text = said.append
        one, other = (engine.engine.tokenize(prompt)[:70] for prompt in prompts(30)[:2])
        ends = [
            engine.ask(tokens, 1, sampling=SamplingParams(seed=7), wanted=Wanted(3))[1]
            for tokens in (one, one, one, other, one)
        ]
        assert all(ends[index].timings.cached_tokens >= 66 for index in (1, 2, 4))
        likelihoods = [text.likelihoods for text in said if text.likelihoods]
        assert likelihoods[1] == likelihoods[2] == likelihoods[4] == likelihoods[0] != likelihoods[3]


def test_a_prompt_behind_the_window_goes_on_from_a_checkpoint(gemma: Path) -> None:
    with live(gemma, keeping=RAM, n_ctx=2048, n_parallel=1, n_ubatch=128, n_batch=128) as engine:
        tokens = engine.engine.tokenize(" ".join(f"number {value}" for value in range(400)))[:900]
        engine.ask(tokens, 1)
        parted = [*tokens[:600], 7, 8, 9]
        text, end = engine.ask(parted, 8)
        assert 512 <= end.timings.cached_tokens <= 600
        fresh, _ = engine.ask(parted, 8, cache_prompt=False)
        assert text == fresh


def test_what_is_behind_a_lost_piece_is_moved(smollm2: Path) -> None:
    sentence = "The sky is blue and the grass is green. "
    head, gone = (
        "This is a text about colours.\n",
        "It was written long ago by somebody who had seen them all.\n",
    )
    with live(smollm2, n_ctx=1024, n_parallel=1) as engine:
        engine.ask(head + gone + sentence * 14, 1)
        text, end = engine.ask(head + sentence * 14, 12, n_cache_reuse=32)
        n_prompt = len(engine.engine.tokenize(head + sentence * 14))
        assert n_prompt - 8 <= end.timings.cached_tokens < n_prompt
        assert text.strip() in sentence * 3
        _, end = engine.ask(head + sentence * 13 + "Or is it?", 4)
        assert end.timings.cached_tokens < 16, "what was moved is not taken for the text as a whole"
