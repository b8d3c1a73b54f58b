"""Exit codes of llamactl, and the errors that only a client of the daemon can have.

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed; of several models: some failed, or they failed in different ways |
| 2 | wrong usage (click's own code) |
| 3 | the daemon cannot be reached |
| 4 | no such model |
| 5 | not allowed |
| 130 | cut by Ctrl-C |
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from llamad.errors import LlamadError, UnavailableError

MODEL_NOT_FOUND = "model-not-found"


class ExitCode(IntEnum):
    """What llamactl's caller sees in `$?`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NO_SUCH_MODEL = 4
    NOT_ALLOWED = 5
    INTERRUPTED = 130


class UnreachableError(UnavailableError):
    """Nobody answers at the socket, or whoever did went away before the answer was whole."""

    kind = "daemon-unreachable"


class NotAllowedError(LlamadError):
    """The socket is there and this user may not use it."""

    kind = "not-allowed"
    status = 403


def exit_code(error: LlamadError) -> ExitCode:
    """The code that `error` ends llamactl with."""
    if isinstance(error, UnreachableError):
        return ExitCode.UNREACHABLE
    if error.kind == MODEL_NOT_FOUND:
        return ExitCode.NO_SUCH_MODEL
    if error.status in (401, 403):
        return ExitCode.NOT_ALLOWED
    return ExitCode.FAILED


def exit_code_of_several(errors: Sequence[LlamadError], asked: int) -> ExitCode:
    """One code for `asked` changes of which those in `errors` failed.

    When all failed in the same way that way is the code, so that one model and several read alike.
    """
    if not errors:
        return ExitCode.OK
    codes = {exit_code(error) for error in errors}
    return codes.pop() if len(errors) == asked and len(codes) == 1 else ExitCode.FAILED
