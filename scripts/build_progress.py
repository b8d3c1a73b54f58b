"""Shows how far a long native build is: `pip wheel -v … | build_progress.py LOG`.

Ninja prefixes each step with `[done/all]`. On a terminal one line is kept up to date, elsewhere a line is printed for
every tenth. Everything that comes in goes to LOG; what went wrong last is shown if no wheel came out.
"""

from __future__ import annotations

import collections
import re
import sys
import time
from typing import IO

STEP = re.compile(r"^\s*\[(\d+)/(\d+)\]")
TAIL_LINES = 30


class Progress:
    """Turns step numbers into lines for people, no more of them than the output can bear."""

    def __init__(self, out: IO[str], started_s: float) -> None:
        self._out = out
        self._started_s = started_s
        self._shown = -1

    def step(self, done: int, total: int, now_s: float) -> None:
        percent = 100 * done // max(total, 1)
        if self._out.isatty():
            self._out.write(f"\r    compiling {done}/{total} ({percent} %), {self._elapsed(now_s)} \033[K")
            if done == total:
                self._out.write("\n")
        elif percent // 10 > self._shown:
            self._shown = percent // 10
            self._out.write(f"    compiling {done}/{total} ({percent} %), {self._elapsed(now_s)}\n")
        self._out.flush()

    def _elapsed(self, now_s: float) -> str:
        minutes, seconds = divmod(int(now_s - self._started_s), 60)
        return f"{minutes} min {seconds:02d} s"


def main(log_path: str) -> int:
    progress = Progress(sys.stdout, time.monotonic())
    tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
    built = False
    with open(log_path, "w", encoding="utf-8") as log:
        for line in sys.stdin:
            log.write(line)
            tail.append(line)
            built = built or line.startswith("Successfully built")
            if match := STEP.match(line):
                progress.step(int(match[1]), int(match[2]), time.monotonic())
    if not built:
        sys.stderr.writelines(["    ... the end of the build's output:\n", *(f"    {line}" for line in tail)])
    return 0 if built else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
