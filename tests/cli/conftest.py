"""llamactl as people run it, and a daemon for it to talk to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.fake_daemon import FakeDaemon, FakeModel
from tests.cli.fake_public import FakePublic

LLAMACTL = str(Path(sys.executable).parent / "llamactl")
GOLDEN = Path(__file__).parent / "golden"
BOUND_S = 30.0

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path (a Unix socket's has 107 bytes) that every user may search."""
    path = Path(tempfile.mkdtemp(prefix="llamactl-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def daemon(folder: Path) -> Iterator[FakeDaemon]:
    """Three models: one loaded, one cold with a slash and a colon in its name, one that cannot load."""
    fake = FakeDaemon(
        folder,
        [
            FakeModel(
                "smollm2",
                ("chat", "tiny"),
                state="loaded",
                log=["loading", "ready"],
                ours={
                    "reason": "loaded for a request",
                    "leases": 1,
                    "last_used_s": 4.2,
                    "loaded_s": 61.0,
                    "pid": 4720,
                    "child": 7,
                    "memory": {"host_bytes": 161061273},
                },
            ),
            FakeModel("ggml-org/gemma-3:Q4_K_M", ours={"reason": "not asked for yet"}),
            FakeModel("broken", failure="cannot load 'broken': the file ends after 12 bytes"),
        ],
    )
    yield fake
    fake.close()


@pytest.fixture
def public(daemon: FakeDaemon) -> Iterator[FakePublic]:
    """The public port of `daemon`."""
    fake = FakePublic()
    daemon.listeners = ("unix:/nowhere/http.sock", fake.listener)
    yield fake
    fake.close()


def environment(**more: str) -> dict[str, str]:
    """A small environment, so that no setting of the machine that tests run on changes the output."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "TZ": "UTC", "LC_ALL": "C.UTF-8", "COLUMNS": "80", **more}


@pytest.fixture
def llamactl(daemon: FakeDaemon) -> Run:
    """Runs the real command against `daemon` to its end."""

    def run(
        *args: str, stdin: str = "", before: tuple[str, ...] = (), **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*before, LLAMACTL, *args],
            input=stdin,
            env=environment(**{"LLAMAD_SOCKET": str(daemon.socket_path), **env}),
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )

    return run


@pytest.fixture
def start(daemon: FakeDaemon) -> Iterator[Start]:
    """Starts the real command against `daemon` and leaves it running; the test ends it."""
    running: list[subprocess.Popen[str]] = []

    def begin(*args: str, **options: object) -> subprocess.Popen[str]:
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
            [LLAMACTL, *args], env=environment(LLAMAD_SOCKET=str(daemon.socket_path)), text=True, **streams
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()
