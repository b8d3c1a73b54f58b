"""A handful of the faults that scripts/mutate puts into the scheduler; it tries all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.mutants import MUTANTS
from tests.sim.mutate import ROOT, judge

QUICK = (
    "lru-reversed",
    "drain-never",
    "departing-bytes-given-back-at-once",
    "reads-rejuvenate",
    "late-news-accepted",
)


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.name in QUICK], ids=lambda mutant: mutant.name)
def test_the_simulator_catches_a_fault(mutant: object) -> None:
    verdict = judge(mutant, tests=False)  # type: ignore[arg-type]
    assert verdict.by_simulator.startswith("seed "), verdict.by_simulator or "no world saw it"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_fault_still_fits_the_text(mutant: object) -> None:
    path: Path = ROOT / "llamad" / "core" / mutant.file  # type: ignore[attr-defined]
    found = path.read_text(encoding="utf-8").count(mutant.old)  # type: ignore[attr-defined]
    assert found == 1, f"its text stands {found} times in {path.name}: write it anew in tests/sim/mutants.py"


def test_names_are_not_used_twice() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
