"""The one entry: command line and environment in, settings and registry out.

    from llamad.config.load import Loaded, UsageError, help_text, load, parse_args

    try:
        command = parse_args(sys.argv[1:])
    except UsageError as error: ...                # print str(error), exit 2
    command.action                                 # "help": print(help_text()); "version"; "check"; "run"
    loaded = load(sys.argv[1:], os.environ)        # UsageError as above; no other exception for bad configuration
    loaded.fatal                                   # not empty: print check.render(loaded.fatal), exit 1
    loaded.settings, loaded.registry.models, loaded.registry.problems

`load` never stops at the first problem. A problem with `model` leaves that model out; a `fatal` one is a fault of the
daemon's own options. A reload takes a new `Loaded` only when it has no problem at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from llamad.config import command_line, files, ini, layers, options, paths
from llamad.config.command_line import CommandLine, UsageError
from llamad.config.daemon import build_settings
from llamad.config.helptext import help_text
from llamad.config.layers import Layer
from llamad.config.registry import Read, build_registry
from llamad.config.settings import Loaded, Problem, Registry, Settings

__all__ = ["CommandLine", "Loaded", "UsageError", "help_text", "load", "load_settings", "parse_args"]

_SECTION = "llamad"


def parse_args(argv: Sequence[str]) -> CommandLine:
    """The command line alone, without reading any file. UsageError if it is wrong."""
    return command_line.parse(argv)


def load(argv: Sequence[str], environ: Mapping[str, str], *, settled: bool = False) -> Loaded:
    """Everything that `argv`, `environ` and the files they name say.

    With `settled`, files that are being written to are waited for (see `files`); a start does not wait.
    """
    read = _read_settled if settled else _read
    settings, layer, problems = _read_daemon(argv, environ, read)
    registry = build_registry(settings, layer, read)
    return Loaded(settings, Registry(registry.models, _in_order([*problems, *registry.problems])))


def load_settings(argv: Sequence[str], environ: Mapping[str, str]) -> Loaded:
    """The daemon's own options alone; no preset file and no model directory is looked at, so the registry is empty."""
    settings, _, problems = _read_daemon(argv, environ, _read)
    return Loaded(settings, Registry(problems=_in_order(problems)))


def _read_daemon(
    argv: Sequence[str], environ: Mapping[str, str], read: Read
) -> tuple[Settings, Layer, list[Problem]]:
    command = parse_args(argv)
    config_file = _config_file(command, environ)
    from_file, problems = _read_config(config_file, read)
    from_environment, faults = layers.read_environment(environ)
    layer: Layer = {**from_file, **from_environment, **command.layer}
    settings, setting_faults = build_settings(layer, environ, os.geteuid(), config_file)
    if not settings.models_preset and os.path.exists(paths.PRESET_FILE):
        settings = replace(settings, models_preset=paths.PRESET_FILE)
    return settings, layer, [*problems, *faults, *setting_faults]


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
