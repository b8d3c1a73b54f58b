"""Layers of settings: what one place says, option by option, with where it says it.

A layer maps canonical option names to settings. Laying layers over each other is `{**lower, **upper}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llamad.config import options
from llamad.config.ini import Entry
from llamad.config.option import Option, Scope
from llamad.config.settings import OptionValue, Problem

ENVIRONMENT = "environment"
COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Setting:
    """One option set to a value, and where."""

    option: Option
    value: OptionValue
    file: str
    line: int = 0


Layer = dict[str, Setting]


def read_entries(
    entries: Iterable[Entry], file: str, scopes: tuple[Scope, ...], *, model: str = "", for_all: bool = False
) -> tuple[Layer, list[Problem]]:
    """The layer of a section. Faulty entries are problems and not in the layer.

    `for_all`: the section speaks of every model, so options that name one are faults.
    """
    layer: Layer = {}
    problems = []
    for entry in entries:
        try:
            setting = _read_entry(entry, file, scopes, for_all)
            _check_first(entry, setting, layer)
            layer[setting.option.name] = setting
        except ValueError as error:
            problems.append(Problem(file, entry.line, str(error), model=model))
    return layer, problems


def _read_entry(entry: Entry, file: str, scopes: tuple[Scope, ...], for_all: bool) -> Setting:
    option = options.lookup(entry.key, scopes)
    if option.action:
        raise ValueError(f"cannot set '{entry.key}' in a file: it belongs on the command line")
    if for_all and option.single:
        raise ValueError(f"cannot set '{entry.key}' for all models: it belongs into a model's own section")
    return Setting(option, option.read(entry.value, entry.key), file, entry.line)


def _check_first(entry: Entry, setting: Setting, layer: Layer) -> None:
    first = layer.get(setting.option.name)
    if first is not None:
        raise ValueError(f"cannot set '{entry.key}': line {first.line} sets '{setting.option.name}' already")


def read_environment(environ: Mapping[str, str]) -> tuple[Layer, list[Problem]]:
    """The layer of the environment. Names that no option has are not llamad's business; empty means unset."""
    layer: Layer = {}
    problems = []
    for name, option in options.by_env(options.DAEMON_SCOPES).items():
        text = environ.get(name, "").strip()
        if not text:
            continue
        try:
            layer[option.name] = Setting(option, option.read(text, name), ENVIRONMENT)
        except ValueError as error:
            problems.append(Problem(ENVIRONMENT, 0, str(error), fatal=True))
    return layer, problems
