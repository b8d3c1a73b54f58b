"""What scripts see: one code for each way to end."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamad.cli.exits import ExitCode, NotAllowedError, UnreachableError, exit_code_of_several
from llamad.cli.main import main
from llamad.errors import LlamadError, NotFoundError, RequestError
from tests.cli.conftest import BOUND_S, LLAMACTL, Run, environment
from tests.cli.fake_daemon import FakeDaemon

ASKING = [
    ("status",),
    ("list",),
    ("show", "m"),
    ("load", "m"),
    ("unload", "m"),
    ("unload", "--all"),
    ("reload",),
]
ASKING += [
    ("ps",),
    ("top",),
    ("logs",),
    ("logs", "m", "-f"),
    ("events",),
    ("version",),
    ("chat", "m", "--once", "hi"),
]


def invoke(*args: str) -> Result:
    """llamactl inside this process: what click makes of the arguments and of our errors."""
    return CliRunner().invoke(main, args, prog_name="llamactl")


@pytest.mark.parametrize("args", ASKING, ids=" ".join)
def test_without_a_daemon_every_command_says_which_socket_and_how_to_start(
    folder: Path, args: tuple[str, ...]
) -> None:
    nowhere = folder / "nowhere.sock"
    result = invoke("--socket", str(nowhere), *args)
    assert result.exit_code == 3
    assert f"cannot reach llamad at {nowhere}: no such socket" in result.stderr
    assert "systemctl start llamad" in result.stderr


def test_a_socket_that_nobody_listens_on(llamactl: Run, folder: Path) -> None:
    stale = folder / "stale.sock"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(stale))
    result = llamactl("--socket", str(stale), "status")
    assert result.returncode == 3
    assert "nobody listens there" in result.stderr


def test_version_tells_its_own_even_without_a_daemon(llamactl: Run, folder: Path) -> None:
    result = llamactl("version", "--socket", str(folder / "nowhere.sock"))
    assert result.returncode == 3
    assert result.stdout.startswith("llamactl  ")


@pytest.mark.parametrize("command", ["show", "load", "unload", "logs"])
def test_an_unknown_model_gets_suggestions(llamactl: Run, command: str) -> None:
    result = llamactl(command, "SmolLM")
    assert result.returncode == 4
    assert "cannot find model 'SmolLM'; did you mean 'smollm2'?" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("frobnicate",),
        ("show",),
        ("load",),
        ("unload",),
        ("unload", "smollm2", "--all"),
        ("logs", "-n", "-1"),
        ("completion", "csh"),
        ("status", "extra"),
    ],
    ids=" ".join,
)
def test_wrong_usage(args: tuple[str, ...]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error:" in result.stderr


def without_override(*args: str, socket_path: Path) -> subprocess.CompletedProcess[str]:
    """Run as a user for whom file modes count: root without the capability to pass over them, anybody else as is."""
    drop = "-dac_override,-dac_read_search"
    before = ["setpriv", f"--inh-caps={drop}", f"--bounding-set={drop}"] if os.geteuid() == 0 else []
    return subprocess.run(
        [*before, LLAMACTL, *args],
        env=environment(LLAMAD_SOCKET=str(socket_path)),
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("mode", "advice"),
    [(0o060, "only members of the group"), (0o000, "only the user"), (0o555, "only the user")],
)
def test_a_socket_that_this_user_may_not_use(daemon: FakeDaemon, mode: int, advice: str) -> None:
    daemon.socket_path.chmod(mode)
    result = without_override("status", socket_path=daemon.socket_path)
    assert result.returncode == 5
    assert f"cannot use {daemon.socket_path}: permission denied" in result.stderr
    assert advice in result.stderr


def test_a_folder_that_this_user_may_not_search_names_the_packaged_group(
    daemon: FakeDaemon, folder: Path
) -> None:
    folder.chmod(0o000)
    try:
        result = without_override("status", socket_path=daemon.socket_path)
    finally:
        folder.chmod(0o755)
    assert result.returncode == 5
    assert "sudo usermod -aG llamad" in result.stderr


def test_an_answer_that_forbids(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.reload_answer = LlamadError("cannot reload: user 'x' may not", kind="forbidden", status=403)
    result = llamactl("reload")
    assert result.returncode == 5
    assert result.stderr == "llamactl: cannot reload: user 'x' may not\n"


UNKNOWN = NotFoundError("cannot find it", kind="model-not-found")
FAILED = LlamadError("cannot load it", status=503)


@pytest.mark.parametrize(
    ("errors", "asked", "code"),
    [
        ([], 3, ExitCode.OK),
        ([UNKNOWN], 1, ExitCode.NO_SUCH_MODEL),
        ([UNKNOWN, UNKNOWN], 2, ExitCode.NO_SUCH_MODEL),
        ([UNKNOWN], 2, ExitCode.FAILED),
        ([UNKNOWN, FAILED], 2, ExitCode.FAILED),
        ([FAILED], 1, ExitCode.FAILED),
        ([NotFoundError("cannot find this route")], 1, ExitCode.FAILED),
        ([RequestError("cannot", status=401)], 1, ExitCode.NOT_ALLOWED),
        ([NotAllowedError("cannot")], 1, ExitCode.NOT_ALLOWED),
        ([UnreachableError("cannot")], 1, ExitCode.UNREACHABLE),
    ],
)
def test_one_code_for_several(errors: list[LlamadError], asked: int, code: ExitCode) -> None:
    assert exit_code_of_several(errors, asked) is code
