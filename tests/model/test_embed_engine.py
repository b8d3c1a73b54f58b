"""Vectors by the engine against llama.cpp's own, one input at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from llamad.engine.drafting import DraftModelSettings, SpeculationSettings
from llamad.engine.vocabulary import AdapterFile, Embedded, Failed, Finished
from llamad.errors import ConfigError
from tests.conftest import wait_until
from tests.engine.live import Live, live, loaded
from tests.engine.live_embed import by_llama_cpp, cosine, embed, submit
from tests.model.generated import BERT_POSITIONS, generated

pytestmark = pytest.mark.model

SAME = 0.9999


def inputs_of(n_vocab: int, sizes: Sequence[int], seed: int = 1) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(5, min(n_vocab, 90), size).tolist() for size in sizes]


MANY = [3, 1, 40, 7, 7, 100, 12, 200, 5, 31, 64, 2, 150, 9] * 6


@pytest.mark.parametrize(
    ("name", "pooling"), [("bert", "mean"), ("bert-cls", "cls"), ("rerank", "rank"), ("both-ways", "mean")]
)
def test_many_inputs_at_once_are_what_each_is_alone(name: str, pooling: str) -> None:
    inputs = inputs_of(100, MANY)
    with live(generated(name)) as model:
        assert model.engine.facts.pooling == pooling
        assert not model.engine.facts.generates
        found = embed(model, inputs)
        # Many in a batch: there are more than 4,000 tokens, and 512 in each.
        assert model.engine.stats().steps < len(inputs) / 4
    wanted = by_llama_cpp(generated(name), inputs, pooling)
    assert_same(found, wanted, scores=pooling == "rank")


@pytest.mark.parametrize("pooling", ["none", "mean", "cls", "last"])
@pytest.mark.parametrize("name", ["bert", "tiny", "last", "mamba", "jamba"])
def test_each_pooling(name: str, pooling: str) -> None:
    inputs = inputs_of(100, [5, 1, 90, 33, 700, 8, 8, 8, 8, 8, 8, 8])
    with live(generated(name), n_ctx=1024, n_ubatch=64, embedding=True, pooling=pooling) as model:
        found = embed(model, inputs)
    assert_same(found, by_llama_cpp(generated(name), inputs, pooling))


TEXTS = (
    "Hello world",
    "The capital of France is Paris, and it lies on the Seine.",
    "Rust",
    "A long story about a small village by the sea, where people waited for the ships. " * 4,
)


@pytest.mark.parametrize("model_name", ["smollm2", "gemma"])
def test_real_decoders(model_name: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(model_name)
    found = {}
    with live(path, n_ctx=512, n_parallel=2, embedding=True) as model:
        inputs = [model.engine.tokenize(text) for text in TEXTS]
        for pooling in ("mean", "last"):
            together = embed(model, inputs, pooling=pooling)
            found[pooling] = together, [embed(model, [tokens], pooling=pooling)[0] for tokens in inputs[:2]]
    for pooling, (together, alone) in found.items():
        wanted = by_llama_cpp(path, inputs, pooling)
        assert_same(alone, wanted[:2])
        # llama.cpp computes attention in another order where there are more tokens; most is seen of it in short texts.
        assert_same(together, wanted, same=0.995)


def test_a_cache_is_no_reason_to_take_an_input_in_pieces() -> None:
    inputs = inputs_of(100, [600, 1024, 30, 400, 5])
    with live(generated("both-ways"), n_ctx=1024, n_ubatch=64) as model:
        assert not model.engine.facts.generates
        found = embed(model, inputs)
    assert_same(found, by_llama_cpp(generated("both-ways"), inputs, "mean"))


def test_a_decoder_ranks_in_pieces() -> None:
    inputs = inputs_of(100, [300, 5, 64, 65, 1, 20, 20, 20, 20])
    with live(generated("qwen3-rerank"), n_ctx=512, n_ubatch=64) as model:
        assert model.engine.facts.pooling == "rank"
        assert model.engine.facts.generates
        found = embed(model, inputs)
    wanted = by_llama_cpp(generated("qwen3-rerank"), inputs, "rank")
    assert found[0].shape == (1, 2)
    assert_same(found, wanted, scores=True)


def test_an_input_as_long_as_the_model_goes_is_longer_than_the_batch() -> None:
    inputs = inputs_of(100, [BERT_POSITIONS, 10, BERT_POSITIONS - 1])
    with live(generated("bert"), n_ubatch=128) as model:
        found = embed(model, inputs)
        id = submit(model, inputs_of(100, [BERT_POSITIONS + 1]))
        model.wait(id)
        failure = model.ends[id]
        assert isinstance(failure, Failed)
        assert failure.error.details == {"n_prompt_tokens": BERT_POSITIONS + 1, "n_ctx": BERT_POSITIONS}
    assert_same(found, by_llama_cpp(generated("bert"), inputs, "mean"))


def test_vectors_are_made_while_others_are_answered() -> None:
    """One engine, one context: neither changes the other."""
    inputs = inputs_of(100, [300, 20, 20, 20, 500])
    prompt = inputs_of(100, [60])[0]
    with live(generated("tiny"), n_ctx=1024, n_parallel=2, embedding=True, pooling="mean") as model:
        alone, _ = model.ask(prompt, 100, cache_prompt=False)
        talk = model.submit(prompt, 100, cache_prompt=False)
        vectors = [submit(model, inputs) for _ in range(3)]
        model.wait(talk, *vectors)
        assert isinstance(model.ends[talk], Finished)
        assert model.texts[talk] == alone
        found = [model.ends[id] for id in vectors]
    wanted = by_llama_cpp(generated("tiny"), inputs, "mean")
    for end in found:
        assert isinstance(end, Embedded)
        assert_same([np.frombuffer(each, np.float32)[np.newaxis] for each in end.vectors], wanted)


def test_a_long_input_beside_a_conversation_that_fills_the_memory() -> None:
    inputs = inputs_of(100, [240, 200])
    with live(generated("tiny"), n_ctx=256, n_parallel=1, embedding=True, pooling="last") as model:
        talk = model.submit(inputs_of(100, [150])[0], -1)
        vectors = submit(model, inputs)
        model.wait(talk, vectors)
        end, found = model.ends[talk], model.ends[vectors]
        assert isinstance(end, Finished)
        assert end.timings.prompt_tokens + end.timings.predicted_tokens >= 256 or end.reason == "stop"
        assert isinstance(found, Embedded)
    wanted = by_llama_cpp(generated("tiny"), inputs, "last")
    assert_same([np.frombuffer(each, np.float32)[np.newaxis] for each in found.vectors], wanted)


def test_each_request_has_the_vectors_of_its_adapters() -> None:
    inputs = inputs_of(100, [20, 200, 3])
    files = tuple(AdapterFile(str(generated(name))) for name in ("lora-a", "lora-b"))
    sets = [(), ((0, 1.0),), ((1, 1.0),), ((0, 1.0), (1, 0.5))]
    with live(
        generated("tiny"), n_ctx=1024, n_ubatch=64, embedding=True, pooling="mean", adapters=files
    ) as model:
        alone = [np.concatenate(embed(model, inputs, adapters=each)) for each in sets]
        ids = [submit(model, inputs, adapters=each) for each in sets]
        talk = model.submit(inputs[0], 20, adapters=sets[1])
        model.wait(talk, *ids)
        together = [model.ends[id] for id in ids]
    for first, second in itertools.combinations(alone, 2):
        assert cosine(first, second) < 0.999
    assert cosine(alone[0], np.concatenate(by_llama_cpp(generated("tiny"), inputs, "mean"))) > SAME
    for end, wanted in zip(together, alone, strict=True):
        assert isinstance(end, Embedded)
        found = np.array([np.frombuffer(each, np.float32) for each in end.vectors])
        assert cosine(found, wanted) > SAME


def test_a_draft_model_beside_vectors() -> None:
    inputs = inputs_of(100, [20, 200, 3])
    settings = SpeculationSettings(("draft-simple",), draft=DraftModelSettings(str(generated("tiny"))))
    with live(generated("target"), n_ctx=1024, embedding=True, pooling="last", speculation=settings) as model:
        alone, _ = model.ask(inputs[0], 40, cache_prompt=False)
        talk, vectors = model.submit(inputs[0], 40, cache_prompt=False), submit(model, inputs)
        model.wait(talk, vectors)
        assert model.texts[talk] == alone
        end = model.ends[vectors]
        assert isinstance(end, Embedded)
        assert model.engine.stats().accepted_tokens
    wanted = by_llama_cpp(generated("target"), inputs, "last")
    assert_same([np.frombuffer(each, np.float32)[np.newaxis] for each in end.vectors], wanted)


def test_a_cancelled_request_is_dropped_and_the_next_is_right() -> None:
    with live(generated("bert")) as model:
        id = submit(model, inputs_of(100, [1000] * 500))
        wait_until(lambda: model.engine.stats().steps > 2)
        model.engine.cancel(id)
        inputs = inputs_of(100, [30])
        found = embed(model, inputs)
        wait_until(lambda: model.engine.stats().requests_cancelled == 1)
        model.settle()
        assert id not in model.ends
    assert_same(found, by_llama_cpp(generated("bert"), inputs, "mean"))


def test_what_a_model_does_not_do_is_said() -> None:
    with live(generated("bert")) as model:
        id = model.submit([5, 6], 3)
        model.wait(id)
        assert error_status(model, id) == (501, "not-supported")
    with live(generated("tiny"), n_ctx=256) as model:
        id = submit(model, [[5, 6]])
        model.wait(id)
        assert error_status(model, id) == (501, "not-supported")


@pytest.mark.parametrize("name", ["tiny", "bert"])
def test_a_model_without_a_head_does_not_rank(name: str) -> None:
    with (
        pytest.raises(ConfigError, match="classifier head"),
        loaded(generated(name), n_ctx=256, pooling="rank"),
    ):
        pass


def error_status(model: Live, id: int) -> tuple[int, str]:
    end = model.ends[id]
    assert isinstance(end, Failed)
    return end.error.status, end.error.kind


def assert_same(
    found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], *, scores: bool = False, same: float = SAME
) -> None:
    assert [each.shape for each in found] == [each.shape for each in wanted]
    for mine, theirs in zip(found, wanted, strict=True):
        if scores:
            assert mine == pytest.approx(theirs, abs=0.02)
        else:
            assert cosine(mine, theirs) > same
