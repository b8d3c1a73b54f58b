"""Tab completion: the scripts, and the words that the daemon knows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def words(run: Run, typed: str, **env: str) -> list[str]:
    """What bash is offered for the last word of `typed`."""
    parts = typed.split(" ")
    result = run(_LLAMACTL_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=str(len(parts) - 1), **env)
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_name_the_command(llamactl: Run, shell: str) -> None:
    result = llamactl("completion", shell)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"_LLAMACTL_COMPLETE={shell}_complete" in result.stdout


def test_bash_takes_the_script(llamactl: Run, folder: Path) -> None:
    script = folder / "completion.bash"
    script.write_text(llamactl("completion", "bash").stdout)
    shown = subprocess.run(
        ["bash", "-c", f"source {script} && complete -p llamactl"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert shown.stdout.rstrip().endswith("llamactl")


def test_commands_and_models(llamactl: Run) -> None:
    assert words(llamactl, "llamactl lo") == ["load", "logs"]
    assert words(llamactl, "llamactl show ") == [
        "smollm2",
        "chat",
        "tiny",
        "ggml-org/gemma-3:Q4_K_M",
        "broken",
    ]
    assert words(llamactl, "llamactl load smollm2 ggml-org/") == ["ggml-org/gemma-3:Q4_K_M"]
    assert words(llamactl, "llamactl logs b") == ["broken"]


def test_nothing_and_no_noise_without_a_daemon(llamactl: Run, folder: Path) -> None:
    assert words(llamactl, "llamactl show ", LLAMAD_SOCKET=str(folder / "nowhere.sock")) == []


def test_the_socket_that_is_being_typed_counts(llamactl: Run, folder: Path) -> None:
    assert words(llamactl, f"llamactl --socket {folder}/admin.sock show br", LLAMAD_SOCKET="/nowhere") == [
        "broken"
    ]
    assert words(llamactl, f"llamactl show --socket {folder}/admin.sock br", LLAMAD_SOCKET="/nowhere") == [
        "broken"
    ]
