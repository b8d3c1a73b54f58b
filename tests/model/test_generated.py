"""The generated models are what they are said to be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from llamad.engine.backend import Entry
from tests.engine.live import live, loaded
from tests.model.generated import MODELS, N_VOCAB_WIDE, generated

pytestmark = pytest.mark.model

DECODERS = {
    "tiny": "llama",
    "wide": "llama",
    "target": "llama",
    "loops": "llama",
    "last": "llama",
    "mamba": "mamba",
    "jamba": "jamba",
}
TEXT = "the quick brown fox had some of it"


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_same_file_each_time(name: str, tmp_path: Path) -> None:
    MODELS[name](tmp_path / name)
    assert (tmp_path / name).read_bytes() == generated(name).read_bytes()


@pytest.mark.parametrize(("name", "architecture"), DECODERS.items())
def test_a_decoder_answers(name: str, architecture: str) -> None:
    with live(generated(name), n_ctx=256, n_parallel=2) as model:
        facts = model.engine.facts
        assert facts.architecture == architecture
        assert (facts.n_vocab == N_VOCAB_WIDE) is (name == "wide")
        assert model.engine.detokenize(model.engine.tokenize(TEXT)) == TEXT
        text, end = model.ask(TEXT, 12)
        assert text
        assert 0 < end.timings.predicted_tokens <= 12
        assert facts.chat_template


def test_the_draft_is_often_right_and_not_always() -> None:
    tokens = np.random.default_rng(1).integers(0, 300, 100).tolist()
    agreed = np.mean(best(generated("tiny"), tokens) == best(generated("target"), tokens))
    assert 0.5 < agreed < 0.95


def best(path: Path, tokens: Sequence[int]) -> np.ndarray:
    """The likeliest token after each of these."""
    found = []
    with loaded(path, n_ctx=256, n_parallel=1) as backend:
        for position, token in enumerate(tokens):
            backend.decode([Entry(0, position, [token], True)])
            found.append(int(np.argmax(backend.logits(0))))
    return np.array(found)
