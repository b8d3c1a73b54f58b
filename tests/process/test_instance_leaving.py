"""An instance that has to leave while it loads: at once, and not without a word."""

from __future__ import annotations

import subprocess
import sys

import pytest

from llamad.exit_status import EXIT_CLEAN, EXIT_INTERNAL

SCRIPT = """
import sys
from llamad.child.instance import leave_load_behind
from llamad.child.link import Link

link = Link(commands=0, reports=1)
try:
    if sys.argv[1]:
        raise RuntimeError(sys.argv[1])
finally:
    leave_load_behind(link)
"""


@pytest.mark.parametrize(("fault", "status"), [("", EXIT_CLEAN), ("no listener", EXIT_INTERNAL)])
def test_what_went_wrong_is_told(fault: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, fault], check=False, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == status
    assert (f"cannot go on: RuntimeError: {fault}" in done.stdout) == bool(fault)
