"""What is made once for all tests of rules."""

from __future__ import annotations

import pytest

from llamad.engine.guidance import Guide
from tests.api.rules_kit import END, MARKS


@pytest.fixture(scope="session")
def guide() -> Guide:
    return Guide([bytes([byte]) for byte in range(256)] + [b""] * (1 + len(MARKS)), [END])
