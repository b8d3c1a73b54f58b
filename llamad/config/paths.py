"""Where llamad's files are by default: the machine's directories for root, per-user ones for everybody else.

Under systemd the unit's own `RuntimeDirectory=` and `StateDirectory=` count, whoever it runs as.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

CONFIG_FILE = "/etc/llamad/llamad.ini"
PRESET_FILE = "/etc/llamad/models.ini"


def default_runtime_dir(environ: Mapping[str, str], user_id: int) -> str:
    """The directory of the sockets."""
    given = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if given:
        return given
    if user_id == 0:
        return "/run/llamad"
    session = environ.get("XDG_RUNTIME_DIR")
    return os.path.join(session, "llamad") if session else f"/tmp/llamad-{user_id}"


def default_state_dir(environ: Mapping[str, str], user_id: int) -> str:
    """The directory of what outlives a restart."""
    given = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return given
    if user_id == 0:
        return "/var/lib/llamad"
    home = environ.get("HOME") or os.path.expanduser("~")
    return os.path.join(environ.get("XDG_STATE_HOME") or os.path.join(home, ".local/state"), "llamad")
