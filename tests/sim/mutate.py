"""Applies each fault of `mutants` to a copy of llamad and asks the simulator and the scheduler's tests whether they see it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.sim.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "ARCHITECTURE.md",
    "llamad/__init__.py",
    "llamad/errors.py",
    "llamad/units.py",
    "llamad/core",
    "tests/__init__.py",
    "tests/core",
    "tests/sim",
)
EVENTS = 60_000
SEED = 1
TIMEOUT_S = 120.0
UNCHANGED = Mutant("unchanged", "__init__.py", "Pure.", "Pure.")
"""No fault at all: what catches this one catches nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who caught the fault, and with which words. Both empty: it survived."""

    mutant: Mutant
    by_simulator: str
    by_tests: str

    @property
    def caught(self) -> bool:
        return bool(self.by_simulator or self.by_tests)


def judge(mutant: Mutant, events: int = EVENTS, *, tests: bool = True) -> Verdict:
    """Simulate first, then run tests/core, both on the changed copy."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy = Path(name)
        _copy(copy)
        mutant.apply(copy / "llamad" / "core")
        return Verdict(mutant, _simulated(copy, events), _tested(copy) if tests else "")


def _copy(to: Path) -> None:
    for name in COPIED:
        source, target = ROOT / name, to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def _run(copy: Path, *arguments: str) -> tuple[int, str]:
    """Exit status and output; a run that does not end counts as failed: the fault has made something endless."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", *arguments]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, f"seed ?: no end within {TIMEOUT_S:.0f} s"
    return done.returncode, done.stdout + done.stderr


def _simulated(copy: Path, events: int) -> str:
    status, output = _run(copy, "-m", "tests.sim", "--events", str(events), "--seed", str(SEED))
    if status == 0:
        return ""
    said = re.findall(r"^(?:Broken|\w*Error): (.*)$", output, re.MULTILINE)
    return said[0] if said else output.strip().splitlines()[-1]


def _tested(copy: Path) -> str:
    """The first test that failed."""
    status, output = _run(copy, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "tests/core")
    if status == 0:
        return ""
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return failed[0] if failed else output.strip().splitlines()[-1]


def report(verdicts: Iterable[Verdict]) -> int:
    """A line each, as they come; gives the number of survivors."""
    verdicts = list(verdicts)
    for verdict in verdicts:
        print(f"{'caught' if verdict.caught else 'SURVIVED':<8} {verdict.mutant.name}")
        for who, what in (("simulator", verdict.by_simulator), ("tests", verdict.by_tests)):
            print(f"         {who + ':':<10} {what or '-'}")
    return sum(not verdict.caught for verdict in verdicts)


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser("scripts/mutate", description=__doc__)
    made.add_argument("names", nargs="*", metavar="NAME", help="only these faults (all)")
    made.add_argument("--jobs", type=int, default=2, metavar="J", help="faults at once (%(default)s)")
    made.add_argument(
        "--events", type=int, default=EVENTS, metavar="N", help="steps to simulate (%(default)s)"
    )
    made.add_argument("--no-tests", action="store_true", help="ask the simulator only")
    options = made.parse_args(arguments)
    if unknown := set(options.names) - {mutant.name for mutant in MUTANTS}:
        made.error(f"cannot find {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in MUTANTS if not options.names or mutant.name in options.names]
    if (sound := judge(UNCHANGED, options.events, tests=not options.no_tests)).caught:
        report([sound])
        return 2
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = list(
            pool.map(lambda mutant: judge(mutant, options.events, tests=not options.no_tests), chosen)
        )
    survivors = report(verdicts)
    simulator = sum(bool(verdict.by_simulator) for verdict in verdicts)
    tests = sum(bool(verdict.by_tests) for verdict in verdicts)
    print(
        f"{len(verdicts)} faults: {simulator} caught by the simulator, {tests} by tests/core, {survivors} survived"
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
