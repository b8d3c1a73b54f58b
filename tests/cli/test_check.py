"""check: the real configuration reader, no daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def presets(folder: Path) -> Path:
    """A models.ini with a model that is there, one that is not, and a key that nobody knows."""
    (folder / "tiny.gguf").write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
    path = folder / "models.ini"
    path.write_text(
        f"[good]\nmodel = {folder}/tiny.gguf\n[bad]\nmodel = {folder}/gone.gguf\n[typo]\nctx-sise = 5\n"
    )
    return path


def test_problems_name_file_and_line(llamactl: Run, presets: Path) -> None:
    result = llamactl("check", str(presets))
    assert result.returncode == 1
    assert f"{presets}:4: cannot" in result.stderr
    assert f"{presets}:6: cannot" in result.stderr
    assert "1 model, " in result.stdout


def test_a_daemon_file_brings_its_presets(llamactl: Run, presets: Path, folder: Path) -> None:
    config = folder / "llamad.ini"
    config.write_text(f"port = 1234\nmodels-preset = {presets}\n")
    assert f"{presets}:4: cannot" in llamactl("check", str(config)).stderr
    presets.write_text(f"[good]\nmodel = {folder}/tiny.gguf\n")
    result = llamactl("check", str(config))
    assert (result.returncode, result.stdout, result.stderr) == (0, "1 model, no problems\n", "")


def test_as_json(llamactl: Run, presets: Path) -> None:
    result = llamactl("check", str(presets), "--json")
    document = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (1, "")
    assert document["models"] == ["good"]
    assert {problem["line"] for problem in document["problems"]} >= {4, 6}
    assert all(
        set(problem) == {"file", "line", "message", "model", "fatal"} for problem in document["problems"]
    )


def test_a_file_that_is_not_there(llamactl: Run, folder: Path) -> None:
    result = llamactl("check", str(folder / "gone.ini"))
    assert result.returncode == 1
    assert "gone.ini: cannot" in result.stderr


def test_no_daemon_is_needed(llamactl: Run, folder: Path) -> None:
    config = folder / "llamad.ini"
    config.write_text("port = 1234\n")
    assert llamactl("check", str(config), LLAMAD_SOCKET="/nowhere").returncode == 0


def test_without_a_file_it_says_what_was_read(llamactl: Run, folder: Path) -> None:
    config = folder / "llamad.ini"
    config.write_text(f"models-dir = {folder}\n")
    result = llamactl("check", LLAMAD_CONFIG=str(config))
    assert f"read {config}, " in result.stdout
    assert f"{folder}\n" in result.stdout


def test_what_kind_of_file_it_is_can_be_said(llamactl: Run, folder: Path) -> None:
    file = folder / "x.ini"
    file.write_text("")
    assert llamactl("check", str(file)).returncode == 0
    file.write_text("port = 1234\n")
    assert llamactl("check", "--config", str(file)).returncode == 0
    assert "cannot set 'port' before the first section" in llamactl("check", "--preset", str(file)).stderr
    assert llamactl("check", "--preset").returncode == 2
