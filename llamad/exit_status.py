"""Exit statuses of llamad's own processes. systemd does not start the daemon again after 1 and 2."""

from __future__ import annotations

EXIT_CLEAN = 0
EXIT_BAD_CONFIG = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 69
"""EX_UNAVAILABLE of sysexits.h: what is needed is taken at the moment, such as the port."""
EXIT_INTERNAL = 70
"""EX_SOFTWARE of sysexits.h: a bug, or something that should not happen."""
