"""Which admin socket is meant when none is named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from llamad.config.paths import default_runtime_dir

SOCKET_ENV = "LLAMAD_SOCKET"
SOCKET_NAME = "admin.sock"
SYSTEM_SOCKET = Path("/run/llamad", SOCKET_NAME)


def admin_socket_path(
    environment: Mapping[str, str], uid: int | None = None, system_socket: Path = SYSTEM_SOCKET
) -> Path:
    """`$LLAMAD_SOCKET`, else the system's daemon where there is one (or for root), else the user's own."""
    if environment.get(SOCKET_ENV):
        return Path(environment[SOCKET_ENV])
    uid = os.geteuid() if uid is None else uid
    if uid == 0 or _exists(system_socket):
        return system_socket
    # $RUNTIME_DIRECTORY counts for a daemon only: here it would be that of whichever unit runs llamactl.
    own = {name: value for name, value in environment.items() if name != "RUNTIME_DIRECTORY"}
    return Path(default_runtime_dir(own, uid), SOCKET_NAME)


def _exists(path: Path) -> bool:
    """Whether it is there, as far as this user can tell. A directory that may not be searched has a daemon in it."""
    try:
        return path.exists()
    except PermissionError:
        return True
