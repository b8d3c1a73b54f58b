"""Why llama.cpp failed. Its functions only return NULL; the reasons are lines in its log.

Memory that cannot be had is told apart from all else, because it is nobody's fault and passes: the last lines name what
was asked for, on the way from the allocator up to the function that was called. Some such failures end the process
instead (`ggml_abort`); the words that ggml has for that are judged the same way.
"""

from __future__ import annotations

import logging
import re
from collections import deque

from llamad.errors import LlamadError, OutOfMemoryError

LINES_MAX = 4
LINE_CHARS_MAX = 300

_NO_MEMORY = re.compile(
    r"(failed|unable) to allocate|insufficient memory|out of ?memory|bad_alloc|cannot allocate|OutOf\w*Memory",
    re.IGNORECASE,
)
_FUNCTION = re.compile(r"^\w+: ")


class Complaints(logging.Handler):
    """Keeps the last error lines that go to `log` while it is entered."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__(logging.ERROR)
        self._log = log
        self._lines: deque[str] = deque(maxlen=LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(_FUNCTION.sub("", record.getMessage())[:LINE_CHARS_MAX])

    @property
    def reason(self) -> str:
        """The lines, oldest first: that is the one nearest to the cause."""
        return "; ".join(self._lines) or "llama.cpp gave no reason"

    @property
    def last(self) -> str:
        """The last line, "" if there is none."""
        return self._lines[-1] if self._lines else ""

    def failure(self, doing: str) -> LlamadError:
        """The error for "cannot ...": OutOfMemoryError, or one of kind `load-failed`."""
        return failure(f"{doing}: {self.reason}", kind="load-failed")

    def __enter__(self) -> Complaints:
        self._log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)


def failure(message: str, kind: str) -> LlamadError:
    """`message` as the error that it tells of: OutOfMemoryError, or else one of this kind."""
    if _NO_MEMORY.search(message):
        return OutOfMemoryError(message)
    return LlamadError(message, kind=kind)
