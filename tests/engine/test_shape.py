"""How contexts are laid out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamad.engine.shape import Shape, Traits, shape_of
from llamad.engine.vocabulary import EngineSettings
from llamad.errors import ConfigError

DECODER = Traits(causal=True, pooling="", n_ctx_train=32768, n_vocab=50_000, n_embd_out=1024)
BERT = Traits(causal=False, pooling="cls", n_ctx_train=512, n_vocab=30_000, n_embd_out=384)
PLAIN = EngineSettings("m.gguf", n_ctx=8192)


def test_a_decoder_is_laid_out_as_it_is_set() -> None:
    assert shape_of(PLAIN, DECODER) == Shape(8192, 2048, 512, 4, 4, kv_unified=True)
    assert shape_of(replace(PLAIN, n_ctx=0), DECODER).n_ctx == 32768
    assert shape_of(replace(PLAIN, n_batch=100), DECODER).n_ubatch == 100
    assert not shape_of(replace(PLAIN, kv_unified=False), DECODER).kv_unified


def test_a_decoder_that_embeds_has_sequences_beside_its_slots() -> None:
    shape = shape_of(replace(PLAIN, embedding=True), DECODER)
    assert shape.generates
    assert shape.embedding
    assert (shape.embedding.pooling, shape.embedding.whole, shape.embedding.n_input_max) == ("", False, 8192)
    assert shape.embedding.sequences == range(4, 12)
    assert (shape.n_sequences, shape.n_ubatch, shape.n_batch) == (12, 512, 2048)
    assert shape.embedding.n_step == shape.n_outputs == 512
    assert shape.output_bytes == 4 * 512 * (50_000 + 1024)


@pytest.mark.parametrize(("n_vocab", "n_step"), [(1000, 512), (262_144, 128), (100_000_000, 32)])
def test_a_large_vocabulary_makes_small_steps(n_vocab: int, n_step: int) -> None:
    shape = shape_of(replace(PLAIN, embedding=True), replace(DECODER, n_vocab=n_vocab))
    assert shape.embedding
    assert shape.embedding.n_step == n_step
    assert shape.n_outputs == n_step


def test_a_pooling_in_the_file_is_taken_for_a_wish() -> None:
    shape = shape_of(PLAIN, replace(DECODER, pooling="last"))
    assert shape.generates
    assert shape.embedding
    assert shape.embedding.pooling == "last"
    for pooling in ("last", ""):
        chosen = shape_of(replace(PLAIN, pooling="mean"), replace(DECODER, pooling=pooling))
        assert chosen.embedding
        assert chosen.embedding.pooling == "mean"


def test_there_are_never_more_sequences_than_llama_cpp_takes() -> None:
    shape = shape_of(replace(PLAIN, embedding=True, n_parallel=252), DECODER)
    assert (shape.n_sequences, shape.n_outputs) == (256, 512)
    few = shape_of(replace(PLAIN, embedding=True, n_parallel=30, n_ubatch=32), DECODER)
    assert few.n_outputs >= few.n_sequences


def test_scores_need_a_head() -> None:
    with pytest.raises(ConfigError, match="classifier head"):
        shape_of(replace(PLAIN, embedding=True, pooling="rank"), replace(DECODER, ranks=False))


def test_inputs_need_a_sequence() -> None:
    with pytest.raises(ConfigError, match="parallel 256"):
        shape_of(replace(PLAIN, embedding=True, n_parallel=256), DECODER)


def test_inputs_need_a_memory_that_is_shared() -> None:
    with pytest.raises(ConfigError, match="kv-unified"):
        shape_of(replace(PLAIN, embedding=True, kv_unified=False), DECODER)


@pytest.mark.parametrize(
    ("n_ctx", "trained", "n_ubatch", "expected"),
    [
        (0, 512, 512, (512, 512)),
        (0, 8192, 512, (8192, 8192)),
        (2048, 8192, 512, (2048, 2048)),
        (9999, 512, 512, (512, 512)),
        (0, 512, 2048, (512, 2048)),
        (100, 512, 64, (100, 100)),
    ],
)
def test_a_batch_of_a_model_that_sees_all_holds_its_longest_input(
    n_ctx: int, trained: int, n_ubatch: int, expected: tuple[int, int]
) -> None:
    settings = replace(PLAIN, n_ctx=n_ctx, n_ubatch=n_ubatch, kv_unified=False)
    shape = shape_of(settings, replace(BERT, n_ctx_train=trained))
    assert (shape.n_ctx, shape.n_ubatch) == expected
    assert shape.n_batch == shape.n_ubatch == shape.n_outputs
    assert shape.kv_unified
    assert not shape.generates
    assert shape.embedding
    assert shape.embedding.whole
    assert shape.embedding.n_input_max == shape.n_ctx
    assert len(shape.embedding.sequences) == shape.n_sequences <= shape.n_outputs
