"""ARCHITECTURE.md shows the model machine; this keeps the picture true to the table."""

from __future__ import annotations

import re
from pathlib import Path

from llamad.core.model import TRANSITIONS

DOCUMENT = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"


def test_the_documented_machine_is_the_table() -> None:
    drawn = re.findall(r"^([A-Z]+) +--([a-z]+)--> +([A-Z]+)$", DOCUMENT.read_text(), re.MULTILINE)
    table = [
        (s.name, happening, to.name) for s, ways in TRANSITIONS.items() for happening, to in ways.items()
    ]
    assert sorted(drawn) == sorted(table)
