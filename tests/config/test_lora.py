"""LoRA adapters in the configuration: files of a model like its others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.config.gguf_kit import write_model
from tests.config.test_load import only, presets


def adapter(path: Path, **metadata: str) -> Path:
    return write_model(path, **{"general__type": "adapter", "adapter__type": "lora", **metadata})


def test_adapters_are_files_of_the_model(tmp_path: Path) -> None:
    model, first = write_model(tmp_path / "m.gguf"), adapter(tmp_path / "a,b.gguf")
    second = adapter(tmp_path / "c.gguf")
    text = f'''[m]\nmodel = {model}\nlora = '"{first}"'\nlora-scaled = {second}:0.5\n'''
    spec = only(presets(tmp_path, text))
    assert spec.options == {"lora": (str(first),), "lora-scaled": (f"{second}:0.5",)}
    assert spec.args[3:] == ("--lora", f'"{first}"', "--lora-scaled", f"{second}:0.5")
    assert f'lora = "\\"{first}\\""\n' in spec.preset
    seen = {spec.fingerprint, spec.files}
    os.utime(second, (1, 1))
    changed = only(presets(tmp_path, text))
    assert len(seen | {changed.fingerprint, changed.files}) == 4


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("lora = {0}/none.gguf", "cannot read '{0}/none.gguf' as user"),
        ("lora = {0}/a.gguf,{0}", "cannot use '{0}': it is a directory"),
        ("lora = {0}/m.gguf", "cannot use '{0}/m.gguf': it is no LoRA adapter"),
        (
            "lora = {0}/a.gguf,{0}/g.gguf",
            "cannot use '{0}/g.gguf': it is for models of the architecture 'gemma3', not 'llama'",
        ),
        ("lora-scaled = {0}/t.gguf:1", "cannot use '{0}/t.gguf': it is no LoRA adapter"),
        ("lora-scaled = {0}/empty.gguf:1", "cannot use '{0}/empty.gguf': "),
        ("lora-scaled = {0}/a.gguf", "cannot set 'lora-scaled': '{0}/a.gguf' is not FILE:SCALE"),
    ],
)
def test_adapters_that_are_none(tmp_path: Path, lines: str, message: str) -> None:
    model = write_model(tmp_path / "m.gguf")
    adapter(tmp_path / "a.gguf")
    adapter(tmp_path / "g.gguf", general__architecture="gemma3")
    adapter(tmp_path / "t.gguf", adapter__type="control_vector")
    (tmp_path / "empty.gguf").write_bytes(b"")
    text = f"[m]\nmodel = {model}\n{lines.format(tmp_path)}\n"
    [problem] = presets(tmp_path, text).registry.problems
    assert problem.message.startswith(message.format(tmp_path))
    assert (problem.line, problem.model) == (3, "m")
