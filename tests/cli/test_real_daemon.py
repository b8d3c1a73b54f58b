"""llamactl against the real daemon with a real model: what the fake daemon promises is what the real one does."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import LLAMACTL, environment
from tests.conftest import wait_until
from tests.harness import LOAD_WITHIN_S, Llamad

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def real(smollm2: Path) -> Iterator[Llamad]:
    with Llamad(f"[org/smol:Q4]\nmodel = {smollm2}\nalias = smol\nc = 512\nnp = 1\n") as daemon:
        yield daemon


def start(real: Llamad, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [LLAMACTL, *args],
        env=environment(LLAMAD_SOCKET=str(real.folder / "run" / "admin.sock")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(real: Llamad, *args: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    process = start(real, *args)
    try:
        out, err = process.communicate(timeout=LOAD_WITHIN_S)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


def test_load_chat_and_unload(real: Llamad) -> None:
    code, out, err = run(real, "load", "smol")
    assert (code, err) == (0, "")
    assert out.startswith("smol: loaded (")
    assert real.state("org/smol:Q4") == "loaded"
    code, out, err = run(
        real, "chat", "smol", "--once", "Say hello.", "--max-tokens", "8", "--temperature", "0"
    )
    assert (code, err) == (0, "")
    assert out.strip()
    code, out, _ = run(real, "ps", "--json")
    roles = {process["role"] for process in json.loads(out)["processes"]}
    assert (code, roles) == (0, {"supervisor", "proxy", "instance"})
    code, out, err = run(real, "unload", "--all")
    assert (code, err) == (0, "")
    assert out.startswith("org/smol:Q4: unloaded (")
    assert not real.ps("instance")


@pytest.mark.parametrize("command", ["status", "list", "ps", "events", "logs", "version", "reload"])
def test_every_report_has_both_forms(real: Llamad, command: str) -> None:
    code, out, err = run(real, command)
    assert (code, err) == (0, "")
    assert out
    if command == "reload":
        return
    code, out, err = run(real, command, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out.splitlines()[-1] if command in ("events", "logs") else out)


def test_a_name_with_a_slash_and_a_colon(real: Llamad) -> None:
    code, out, _ = run(real, "show", "org/smol:Q4", "--json")
    assert (code, json.loads(out)["id"]) == (0, "org/smol:Q4")
    assert run(real, "show", "org/smol:Q4")[1].startswith("model ")
    assert run(real, "logs", "org/smol:Q4")[0] == 0


@pytest.mark.parametrize(
    "args", [("show", "smoll"), ("load", "smoll"), ("logs", "smoll"), ("chat", "smoll", "--once", "x")]
)
def test_an_unknown_name(real: Llamad, args: tuple[str, ...]) -> None:
    code, out, err = run(real, *args)
    assert (code, out) == (4, "")
    assert "did you mean 'smol'" in err


def test_a_load_goes_on_after_ctrl_c(real: Llamad) -> None:
    run(real, "unload", "smol")
    process = start(real, "load", "smol")
    try:
        wait_until(lambda: real.state("org/smol:Q4") != "unloaded")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LOAD_WITHIN_S)
    finally:
        process.kill()
        process.wait()
    real.wait_state("org/smol:Q4", "loaded")
    # It may have been loaded before the signal came.
    assert process.returncode in (0, 130)


def test_a_bad_reload_names_the_line(real: Llamad) -> None:
    good = real.presets.read_text()
    real.presets.write_text(good + "[bad]\nmodel = /nowhere/gone.gguf\n")
    try:
        code, out, err = run(real, "reload")
    finally:
        real.presets.write_text(good)
    assert (code, out) == (1, "")
    assert f"  {real.presets}:7: cannot" in err
    assert run(real, "reload")[:2] == (0, "unchanged  1\n")


def test_following_the_log(real: Llamad) -> None:
    process = start(real, "logs", "-f", "-n", "1")
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "an old line: from here on it follows"
        run(real, "load", "smol")
        run(real, "unload", "smol")
        assert "smol" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LOAD_WITHIN_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (130, "")
