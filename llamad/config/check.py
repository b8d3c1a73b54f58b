"""Problems as people read them: `file:line: cannot …`, for `llamad --check-config` and `llamactl check`."""

from __future__ import annotations

from collections.abc import Sequence

from llamad.config import files, ini, paths
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


def arguments(path: str) -> list[str]:
    """The command line that checks one file: a llamad.ini if it has a section [llamad], else presets if it has any
    other section or says which `version` of their format it has.
    """
    try:
        text, _ = ini.decode(files.read_whole(path, ini.FILE_BYTES_MAX), path)
    except (OSError, ValueError):
        return ["--config", path]
    sections, _ = ini.parse(text, path)
    names = {section.name for section in sections}
    versioned = any(
        entry.key == "version" for section in sections if not section.name for entry in section.entries
    )
    presets = "llamad" not in names and (versioned or names - {""})
    return ["--models-preset" if presets else "--config", path]


def read_files(loaded: Loaded) -> str:
    """What a check without a file has looked at, one line."""
    settings = loaded.settings
    read = [path for path in (settings.config_file, settings.models_preset, settings.models_dir) if path]
    if not read:
        return f"nothing to read: there is no {paths.CONFIG_FILE} and no {paths.PRESET_FILE}\n"
    return f"read {', '.join(map(_visible, read))}\n"


def _consequence(problem: Problem) -> str:
    return _visible(f" (model '{problem.model}' is left out)") if problem.model else ""


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
