"""Building the RPC backend: what is there already is used, and what fails says why and leaves nothing behind."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.scripts.test_scripts import script


def archive_of(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(f"llama_cpp_python-1/{name}"), io.BytesIO())
    return path


def test_what_was_built_before_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    module = script("build_rpc_backend")
    path = module.library_path(tmp_path)
    path.parent.mkdir()
    path.touch()
    assert module.build(tmp_path) == path


def test_no_index_is_a_failure_that_names_what_could_not_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("PIP_NO_INDEX", "1"),
        ("PIP_CONFIG_FILE", "/dev/null"),
        ("PIP_FIND_LINKS", str(tmp_path)),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=r"cannot download the sources of llama-cpp-python \d"):
        script("build_rpc_backend").build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_only_what_is_needed_is_unpacked(tmp_path: Path) -> None:
    inside = [
        "vendor/llama.cpp/LICENSE",
        "vendor/llama.cpp/ggml/include/ggml.h",
        "vendor/llama.cpp/ggml/src/ggml-impl.h",
        "vendor/llama.cpp/ggml/src/ggml-rpc/ggml-rpc.cpp",
        "vendor/llama.cpp/ggml/src/ggml-rpc/transport.cpp",
    ]
    outside = [
        "LICENSE.md",
        "vendor/llama.cpp/src/llama.cpp",
        "vendor/llama.cpp/ggml/src/ggml-cpu/ops.cpp",
        "../x",
    ]
    archive = archive_of(tmp_path / "llama_cpp_python-1.tar.gz", *inside, *outside)
    out = script("build_rpc_backend")._unpack(archive, tmp_path)
    found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert found == {name.removeprefix("vendor/llama.cpp/") for name in inside}


def test_an_archive_without_the_backend_is_refused(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "llama_cpp_python-1.tar.gz", "vendor/llama.cpp/LICENSE")
    with pytest.raises(
        SystemExit, match=r"has no ggml/src/ggml-rpc/ggml-rpc\.cpp, ggml/src/ggml-rpc/transport\.cpp"
    ):
        script("build_rpc_backend")._unpack(archive, tmp_path)


def test_no_compiler_and_an_unhappy_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("build_rpc_backend")
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.raises(SystemExit, match=r"cannot run the C\+\+ compiler .*set CXX"):
        module._compile(tmp_path, tmp_path / "out")
    monkeypatch.delenv("CXX")
    with pytest.raises(SystemExit, match=r"(?s)cannot compile the RPC backend:.*No such file"):
        module._compile(tmp_path, tmp_path / "out")
