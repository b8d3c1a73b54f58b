"""One preset with every kind of mistake, and exactly what is said about it.

After a change of a message: `GOLDEN=update pytest tests/config/test_golden.py`, and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llamad.config import check
from llamad.config.load import load
from tests.config.gguf_kit import model_bytes, write_model, write_shards

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path / "good.gguf")
    write_model(tmp_path / "mmproj-good.gguf", general__architecture="clip")
    (tmp_path / "text.gguf").write_text("hello")
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "short.gguf").write_bytes(model_bytes()[:-1])
    write_shards(tmp_path, "parts", 3)[1].unlink()
    return tmp_path


def golden(name: str, said: str) -> None:
    path = GOLDEN / name
    if os.environ.get("GOLDEN") == "update":
        path.write_text(said)
    assert said == path.read_text()


def test_presets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamad.config.files.user_name", lambda: "someone")
    presets = folder / "models.ini"
    presets.write_text((GOLDEN / "presets.ini").read_text().replace("{folder}", str(folder)))
    loaded = load(["--config", "/dev/null", "--models-preset", str(presets)], {})
    said = (check.render(loaded.registry.problems) + check.summary(loaded)).replace(str(folder), "{folder}")
    golden("presets.txt", said)
    assert list(loaded.registry.models) == []
    assert check.exit_status(loaded) == 1
    assert not loaded.fatal, "llamad starts with what is left"
    assert "s3cret" not in said


def test_llamad_ini(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamad.config.files.user_name", lambda: "someone")
    config = folder / "llamad.ini"
    config.write_text((GOLDEN / "llamad.ini").read_text().replace("{folder}", str(folder)))
    loaded = load(["--config", str(config)], {"LLAMA_ARG_PORT": "http", "LLAMA_API_KEY": "s3cret"})
    said = check.render(loaded.registry.problems).replace(str(folder), "{folder}")
    golden("llamad.txt", said)
    assert len(loaded.fatal) == len(loaded.registry.problems)
    assert "s3cret" not in said
