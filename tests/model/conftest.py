"""One llamad with two differently configured models for the tests that only ask it things."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Llamad

SMOL_CONTEXT = 2048


def two_models(smollm2: Path, gemma: Path) -> str:
    """Presets: `smol` (four slots, an alias) and `gemma` (one slot, half the context, no template of its own)."""
    return f"""version = 1
[smol]
model = {smollm2}
alias = smol-alias
c = {SMOL_CONTEXT}
np = 4

[gemma]
model = {gemma}
c = 1024
np = 1
"""


@pytest.fixture(scope="session")
def presets(smollm2: Path, gemma: Path) -> str:
    return two_models(smollm2, gemma)


@pytest.fixture(scope="session")
def llamad(presets: str) -> Iterator[Llamad]:
    """Shared: tests that kill, reload or fill it up start one of their own."""
    with Llamad(presets) as daemon:
        yield daemon
