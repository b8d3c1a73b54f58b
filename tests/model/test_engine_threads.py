"""Threads that compute: whoever has only loaded a model keeps none of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llamad.engine import llama
from llamad.engine.vocabulary import EngineSettings

pytestmark = pytest.mark.model


def test_a_load_leaves_no_team_of_threads_behind(smollm2: Path) -> None:
    """Two teams on the cores of one send each other to sleep: three times the time for a token."""
    before = len(os.listdir("/proc/self/task"))
    backend = llama.load(EngineSettings(str(smollm2), n_ctx=512, n_parallel=1, threads=4))
    try:
        # Two belong to the switch of llamad.engine.spinning.
        assert len(os.listdir("/proc/self/task")) <= before + 2
    finally:
        backend.close()
