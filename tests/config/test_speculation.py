"""Speculation in the configuration: what cannot work is said with the place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.gguf_kit import write_model
from tests.config.test_load import only, presets

TOKENS = [str(number) for number in range(200)]


def test_a_draft_model_is_a_file_of_the_model(tmp_path: Path) -> None:
    model, draft = write_model(tmp_path / "m.gguf"), write_model(tmp_path / "d.gguf")
    spec = only(presets(tmp_path, f"[m]\nmodel = {model}\nmd = {draft}\ndraft-max = 5\n"))
    assert spec.options == {"spec-draft-model": str(draft), "spec-draft-n-max": 5}
    assert any(str(draft) in identity for identity in spec.files)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("spec-type = draft-simple", "cannot draft with a small model: spec-draft-model names none"),
        ("md = {0}/none.gguf", "cannot read '{0}/none.gguf' as user"),
        ("md = {0}/lora.gguf", "cannot draft with a small model: cannot serve '{0}/lora.gguf': it is"),
        ("md = {0}/big.gguf", "cannot draft with a small model: the vocabulary of '{0}/big.gguf' has 200"),
        (
            "spec-type = draft-eagle3",
            "cannot set 'spec-type': 'draft-eagle3' is not one of none, ngram-simple",
        ),
        ("spec-type = ngram-simple,ngram-cache", "cannot set 'spec-type': 'ngram-cache' is not one of"),
        ("spec-draft-p-min = 1.5", "cannot set 'spec-draft-p-min'"),
    ],
)
def test_what_cannot_work(tmp_path: Path, line: str, message: str) -> None:
    model = write_model(tmp_path / "m.gguf")
    write_model(tmp_path / "lora.gguf", general__type="adapter")
    write_model(tmp_path / "big.gguf", tokenizer__ggml__tokens=TOKENS)
    [problem] = presets(tmp_path, f"[m]\nmodel = {model}\n{line.format(tmp_path)}\n").registry.problems
    assert problem.message.startswith(message.format(tmp_path))
    assert (problem.line, problem.model) == (3, "m")


def test_a_vocabulary_may_be_filled_up(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", tokenizer__ggml__tokens=TOKENS)
    draft = write_model(tmp_path / "d.gguf", tokenizer__ggml__tokens=TOKENS[:80])
    assert only(presets(tmp_path, f"[m]\nmodel = {model}\nmd = {draft}\n")).options
