"""What people read: whole screens against golden files, and how they change with the terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess

import pytest

from llamad import __version__
from tests.cli.conftest import BOUND_S, LLAMACTL, Run, environment, golden
from tests.cli.fake_daemon import FakeDaemon

EVENTS = [
    {
        "seq": 1,
        "time": 1764567890.5,
        "kind": "asked",
        "model": "smollm2",
        "text": "loading: 1 waits",
        "took_s": None,
    },
    {
        "seq": 2,
        "time": 1764567893.0,
        "kind": "loaded",
        "model": "smollm2",
        "text": "loaded",
        "took_s": 2.5,
        "rss_bytes": 2048,
    },
    {"seq": 3, "time": 1764567899.0, "kind": "reloaded", "model": None, "text": "configuration read"},
]
PROCESSES = [
    {
        "pid": 4720,
        "role": "instance",
        "model": "smollm2",
        "child": 7,
        "state": "loaded",
        "rss_bytes": 161061273,
        "cpu_s": 12.5,
        "uptime_s": 61.0,
        "address": "127.0.0.1:40001",
        "stats": {"slots_busy": 1, "queued": 0, "predicted_tokens": 812},
    },
    {
        "pid": 4712,
        "role": "proxy",
        "model": None,
        "state": "ready",
        "rss_bytes": 31457280,
        "cpu_s": 0.5,
        "uptime_s": 185.0,
    },
]


@pytest.fixture
def busy(daemon: FakeDaemon) -> FakeDaemon:
    """A daemon that has something to say in every part of every screen."""
    daemon.queue = [{"model": "broken", "waiters": 2, "waited_s": 3.25, "draining": ["smollm2"]}]
    daemon.problems = [
        {
            "file": "/etc/llamad/models.ini",
            "line": 12,
            "message": "cannot use 'ctx-sise': unknown option",
            "model": "b",
        }
    ]
    daemon.processes = PROCESSES
    daemon.events = list(EVENTS)
    daemon.models["broken"].failed = True
    daemon.models["broken"].ours = {
        "reason": "cannot load: the file ends after 12 bytes",
        "failures": 2,
        "retry_in_s": 1.5,
    }
    return daemon


@pytest.mark.parametrize(
    ("args", "file"),
    [
        (["status"], "status.txt"),
        (["list"], "list.txt"),
        (["ls"], "list.txt"),
        (["show", "smollm2"], "show.txt"),
        (["show", "chat"], "show.txt"),
        (["show", "broken"], "show-failed.txt"),
        (["ps"], "ps.txt"),
        (["events"], "events.txt"),
        (["logs", "smollm2"], "logs.txt"),
    ],
)
def test_screens_are_stable(busy: FakeDaemon, llamactl: Run, args: list[str], file: str) -> None:
    result = llamactl(*args)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == golden(file)


def test_version_of_both(llamactl: Run) -> None:
    assert llamactl("version").stdout.splitlines() == [
        f"llamactl  {__version__}",
        "llamad    0.1.0",
        "python    3.11.2",
        "platform  Linux-6.1",
    ]


def test_status_of_an_empty_daemon_says_what_to_set(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.models.clear()
    lines = llamactl("status").stdout.splitlines()
    assert lines[-1] == "No models: set models-dir or models-preset"


def test_devices_of_any_shape_are_a_table(
    daemon: FakeDaemon, llamactl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = daemon.status() | {"devices": [{"name": "CUDA0", "total_bytes": 8 << 30, "free_bytes": 1 << 30}]}
    monkeypatch.setattr(daemon, "status", lambda: status)
    lines = llamactl("status").stdout.splitlines()
    at = lines.index("Devices")
    assert lines[at + 1 : at + 3] == ["NAME   TOTAL    FREE", "CUDA0  8.0 GiB  1.0 GiB"]


def test_a_loading_model_shows_its_share(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.models["broken"].state, daemon.models["broken"].progress = "loading", 0.42
    row = next(line for line in llamactl("list").stdout.splitlines() if line.startswith("broken"))
    assert "loading 42%" in row


def test_what_others_wrote_cannot_drive_the_terminal(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.models["smollm2"].ours["reason"] = "evil \x1b[2J[red]tag[/red]\nnext"
    out = llamactl("list").stdout
    assert "\x1b" not in out
    assert r"evil \x1b[2J[red]tag[/red] next" in out


def on_terminal(daemon: FakeDaemon, *args: str, columns: int = 100, **env: str) -> str:
    """What `llamactl` writes to stdout when that is a terminal."""
    master, slave = pty.openpty()
    try:
        process = subprocess.run(
            [LLAMACTL, *args],
            env=environment(LLAMAD_SOCKET=str(daemon.socket_path), TERM="xterm", COLUMNS=str(columns), **env),
            stdout=slave,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=BOUND_S,
            check=True,
        )
        assert process.stderr == b""
        return os.read(master, 1 << 16).decode()
    finally:
        os.close(slave)
        os.close(master)


def test_colours_on_a_terminal_and_none_with_no_color(busy: FakeDaemon) -> None:
    assert "\x1b[32mloaded" in on_terminal(busy, "list")
    plain = on_terminal(busy, "list", NO_COLOR="1")
    assert "loaded" in plain
    assert "\x1b[32m" not in plain


def test_a_narrow_terminal_wraps_and_loses_nothing(busy: FakeDaemon) -> None:
    busy.models["smollm2"].ours["reason"] = " ".join(f"word{number}" for number in range(30))
    out = on_terminal(busy, "list", columns=80, NO_COLOR="1")
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in out.splitlines()) == 80
    assert "word29" in out
    assert "…" not in out


def test_limits_are_off_or_a_number_and_no_line_is_too_long(
    daemon: FakeDaemon, llamactl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {f"limit_number_{number}": number for number in range(7)} | {"margin_bytes": None}
    document = {**daemon.status(), "limits": limits}
    monkeypatch.setattr(daemon, "status", lambda: document)
    lines = [line for line in llamactl("status").stdout.splitlines() if "limit-number" in line]
    assert len(lines) == 2
    assert lines[1].endswith("limit-number-6 6, margin off")
