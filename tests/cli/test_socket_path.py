"""Which daemon is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamad.cli.socket_path import admin_socket_path

XDG = {"XDG_RUNTIME_DIR": "/run/user/1000"}


@pytest.mark.parametrize(
    ("environment", "uid", "system_runs", "expected"),
    [
        ({"LLAMAD_SOCKET": "/x/a.sock", **XDG}, 1000, True, "/x/a.sock"),
        ({"LLAMAD_SOCKET": ""}, 0, False, "SYSTEM"),
        ({}, 0, False, "SYSTEM"),
        (XDG, 0, False, "SYSTEM"),
        (XDG, 1000, True, "SYSTEM"),
        (XDG, 1000, False, "/run/user/1000/llamad/admin.sock"),
        ({}, 1000, False, "/tmp/llamad-1000/admin.sock"),
        ({"RUNTIME_DIRECTORY": "/run/other-unit"}, 1000, False, "/tmp/llamad-1000/admin.sock"),
    ],
)
def test_order(folder: Path, environment: dict[str, str], uid: int, system_runs: bool, expected: str) -> None:
    system_socket = folder / "admin.sock"
    if system_runs:
        system_socket.touch()
    found = admin_socket_path(environment, uid, system_socket)
    assert found == (system_socket if expected == "SYSTEM" else Path(expected))
