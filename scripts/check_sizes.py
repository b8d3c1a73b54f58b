"""Lists files and functions that have outgrown the house's sizes; exits 1 if one is not excused.

A file over 450 lines or a function over 70 wants a split by noun. scripts/sizes.allow may excuse one, a line each:
`path[:function]  the reason`. An excuse that is no longer needed is an error, too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 70
ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("llamad", "tests", "scripts")


def offenders(path: Path) -> Iterator[tuple[str, int, int]]:
    """`(name, lines, limit)` of the file itself and of its functions that are too long."""
    name = str(path.relative_to(ROOT))
    source = path.read_text(encoding="utf-8")
    lines = source.count("\n")
    if lines > FILE_LINES_MAX:
        yield name, lines, FILE_LINES_MAX
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{name}:{node.name}", length, FUNCTION_LINES_MAX


def excuses(path: Path) -> dict[str, str]:
    """Name to reason. A line without a reason excuses nothing."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    pairs = (line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def main() -> int:
    allowed = excuses(ROOT / "scripts" / "sizes.allow")
    found = [
        one for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) for one in offenders(path)
    ]
    failures = 0
    for name, lines, limit in found:
        reason = allowed.pop(name, None)
        failures += reason is None
        print(f"{name}: {lines} lines, the limit is {limit}" + (f" (allowed: {reason})" if reason else ""))
    for name in allowed:
        failures += 1
        print(f"scripts/sizes.allow: {name} needs no excuse any more")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
