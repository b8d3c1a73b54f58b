"""Problems as people read them: `file:line: cannot …`, for `llamad --check-config` and `llamactl check`."""

from __future__ import annotations

from collections.abc import Sequence

from llamad.config.settings import Loaded, Problem


def render(problems: Sequence[Problem]) -> str:
    """One line a problem, "" for none. Control characters that a file smuggled in are shown, not sent."""
    return "".join(f"{_visible(str(problem))}{_consequence(problem)}\n" for problem in problems)


def summary(loaded: Loaded) -> str:
    """What `--check-config` says last: how many models would be served, how many problems there are."""
    models = len(loaded.registry.models)
    problems = len(loaded.registry.problems)
    said = f"{models} model{'' if models == 1 else 's'}, "
    return said + (f"{problems} problem{'' if problems == 1 else 's'}" if problems else "no problems") + "\n"


def exit_status(loaded: Loaded) -> int:
    """0 without problems, else 1."""
    return 1 if loaded.registry.problems else 0


def _consequence(problem: Problem) -> str:
    return _visible(f" (model '{problem.model}' is left out)") if problem.model else ""


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
