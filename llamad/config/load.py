"""The one entry: command line and environment in, settings and registry out.

    from llamad.config.load import UsageError, help_text, load, load_settings, parse_args

    parse_args(argv).action                        # help, version, check or run; UsageError: exit 2
    settings, problems = load_settings(argv, environ)      # the daemon's own options: a few small files
    loaded = load(argv, environ)                   # and the registry: opens every model's head
    loaded.settings, loaded.registry.models, loaded.registry.problems, loaded.fatal

Nothing here stops at the first problem, and UsageError is the only exception for bad configuration. A problem with
`model` leaves that model out; a `fatal` one is a fault of the daemon's own options: print `check.render(...)`, exit 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llamad.config import command_line, files, ini, layers, options, paths
from llamad.config.command_line import CommandLine, UsageError
from llamad.config.daemon import build_settings
from llamad.config.front import read_front
from llamad.config.helptext import help_text
from llamad.config.layers import Layer
from llamad.config.registry import Read, build_registry
from llamad.config.settings import Loaded, Problem, Registry, Settings

__all__ = ["CommandLine", "Loaded", "UsageError", "help_text", "load", "load_settings", "parse_args"]

_SECTION = "llamad"


def parse_args(argv: Sequence[str]) -> CommandLine:
    """The command line alone, without reading any file. UsageError if it is wrong."""
    return command_line.parse(argv)


def load_settings(
    argv: Sequence[str], environ: Mapping[str, str] | None = None
) -> tuple[Settings, tuple[Problem, ...]]:
    """The daemon's own options and what is wrong with them, without looking at models."""
    own = _read_own(argv, os.environ if environ is None else environ, _read)
    return own.settings, _in_order(own.problems)


def load(argv: Sequence[str], environ: Mapping[str, str] | None = None, *, settled: bool = False) -> Loaded:
    """Everything that `argv`, `environ` (None: this process's) and the files they name say.

    With `settled`, files that are being written to are waited for (see `files`); a start does not wait.
    """
    read = _read_settled if settled else _read
    own = _read_own(argv, os.environ if environ is None else environ, read)
    settings, faults = read_front(own.settings, own.layer, read)
    registry = build_registry(settings, own.layer, read)
    problems = _in_order([*own.problems, *faults, *registry.problems])
    return Loaded(settings, Registry(registry.models, problems))


@dataclass(frozen=True, slots=True)
class _Own:
    """What the daemon's own sources say together."""

    settings: Settings
    layer: Layer
    problems: list[Problem]


def _read_own(argv: Sequence[str], environ: Mapping[str, str], read: Read) -> _Own:
    command = parse_args(argv)
    config_file = _config_file(command, environ)
    from_file, file_faults = _read_config(config_file, read)
    from_environment, environment_faults = layers.read_environment(environ)
    layer: Layer = {**from_file, **from_environment, **command.layer}
    settings, faults = build_settings(layer, environ, os.geteuid(), config_file)
    if not settings.models_preset and os.path.exists(paths.PRESET_FILE):
        settings = replace(settings, models_preset=paths.PRESET_FILE)
    return _Own(settings, layer, [*file_faults, *environment_faults, *faults])


def _config_file(command: CommandLine, environ: Mapping[str, str]) -> str:
    given = command.config or environ.get("LLAMAD_CONFIG", "")
    if given:
        return files.absolute(given)
    return paths.CONFIG_FILE if os.path.exists(paths.CONFIG_FILE) else ""


def _read(path: str) -> bytes:
    return files.read_whole(path, ini.FILE_BYTES_MAX)


def _read_settled(path: str) -> bytes:
    return files.read_settled(path, ini.FILE_BYTES_MAX)


def _read_config(path: str, read: Read) -> tuple[Layer, list[Problem]]:
    """The layer of llamad.ini. Whatever is wrong in it is fatal."""
    if not path:
        return {}, []
    try:
        data = read(path)
    except OSError as error:
        return {}, [Problem(path, 0, files.why(error, f"'{path}'"), fatal=True)]
    except ValueError as error:
        return {}, [Problem(path, 0, f"cannot use '{path}': {error}", fatal=True)]
    text, problems = ini.decode(data, path)
    sections, faults = ini.parse(text, path)
    entries: list[ini.Entry] = []
    for section in sections:
        if section.name in ("", _SECTION):
            entries += section.entries
        else:
            message = f"cannot use the section [{section.name}] here: only [{_SECTION}], models belong into models.ini"
            faults.append(Problem(path, section.line, message))
    layer, entry_faults = layers.read_entries(entries, path, options.DAEMON_SCOPES)
    return layer, [replace(fault, model="", fatal=True) for fault in (*problems, *faults, *entry_faults)]


def _in_order(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """By file as they came up, by line within a file."""
    files_seen = list(dict.fromkeys(problem.file for problem in problems))
    return tuple(sorted(problems, key=lambda problem: (files_seen.index(problem.file), problem.line)))
