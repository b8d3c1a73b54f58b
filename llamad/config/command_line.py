"""The command line: options from the table, in llama-server's manner.

`--name value`, `--name=value`, `-short value`; flags take no value and have `--no-…` forms. A repeated option
counts the last time, a repeated list adds up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llamad.config import options
from llamad.config.layers import COMMAND_LINE, Layer, Setting
from llamad.config.option import Option
from llamad.errors import LlamadError


class UsageError(LlamadError):
    """The command line cannot be understood: exit status 2."""

    kind = "usage"
    status = 400


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What the command line asks for. `action`: `run`, `check`, `help` or `version`; `config` "": the usual file."""

    action: str = "run"
    config: str = ""
    layer: Layer = field(default_factory=dict)


def parse(argv: Sequence[str]) -> CommandLine:
    """Read the arguments after the program's name. UsageError at the first that is wrong."""
    layer: Layer = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        option, spelling, value = _split(word)
        text = value if value is not None else _value_of(option, spelling, rest)
        setting = _read(option, spelling, text)
        layer[option.name] = _joined(layer.get(option.name), setting)
    actions = {name: layer.pop(name).value for name in list(layer) if layer[name].option.action}
    return CommandLine(_action(actions), str(actions.get("config", "")), layer)


def _action(actions: Mapping[str, object]) -> str:
    for name, action in (("help", "help"), ("version", "version"), ("check-config", "check")):
        if actions.get(name):
            return action
    return "run"


def _split(word: str) -> tuple[Option, str, str | None]:
    """The option, its spelling, and the value behind an equals sign."""
    if not word.startswith("-") or word.strip("-") == "":
        raise UsageError(f"cannot use the argument {word!r}: options begin with a dash")
    spelling, equals, value = word.partition("=")
    name = spelling.removeprefix("--") if spelling.startswith("--") else spelling[1:]
    try:
        option = options.lookup(
            name, options.DAEMON_SCOPES, dashes="--" if spelling.startswith("--") else "-"
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if name in option.env_names:
        raise UsageError(f"cannot use the argument {spelling!r}: write --{option.name}")
    return option, spelling, value if equals else None


def _value_of(option: Option, spelling: str, rest: list[str]) -> str:
    """The text of an option without an equals sign: the next word, or nothing for flags."""
    if option.is_flag:
        return "true"
    if not rest or _is_option(rest[0]):
        if option.bare:
            return option.bare
        raise UsageError(f"cannot use '{spelling}' without a value")
    return rest.pop(0)


def _is_option(word: str) -> bool:
    """Whether a word is an option's spelling (`-1` is none, and a file may begin with a dash)."""
    known = options.by_spelling(options.DAEMON_SCOPES)
    return word.startswith("-") and word.partition("=")[0].lstrip("-") in known and word.strip("-") != ""


def _read(option: Option, spelling: str, text: str) -> Setting:
    try:
        return Setting(option, option.read(text, spelling), COMMAND_LINE)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _joined(earlier: Setting | None, later: Setting) -> Setting:
    if earlier is None or not isinstance(earlier.value, tuple) or not isinstance(later.value, tuple):
        return later
    return Setting(later.option, earlier.value + later.value, COMMAND_LINE)
