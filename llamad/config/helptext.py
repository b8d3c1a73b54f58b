"""`llamad --help`, from the option table."""

from __future__ import annotations

import shutil
import textwrap

from llamad.config import options
from llamad.config.option import Option, Scope

_INDENT = 2
_COLUMN = 34
# textwrap breaks at blanks only, so this keeps a short default on one line.
_GLUE = "\u00a0"
_GLUED_MAX = 24
_WIDTH_MIN, _WIDTH_MAX = 72, 110


def help_text(prog: str = "llamad", width: int | None = None) -> str:
    """The whole text, wrapped to `width` columns (None: the terminal's)."""
    width = max(_WIDTH_MIN, min(_WIDTH_MAX, width or shutil.get_terminal_size((100, 24)).columns))
    head = [
        f"Usage: {prog} [OPTION…]",
        "",
        *textwrap.wrap(
            "Serves many GGUF models through one OpenAI-compatible port. Runs in the foreground and logs to stderr; "
            "SIGTERM drains and stops it, SIGHUP reloads its configuration.",
            width,
        ),
        "",
    ]
    foot = textwrap.wrap(
        "Every option is also a key of the configuration file (without dashes) and an environment variable "
        "(LLAMA_ARG_ and the name in capitals, or llama-server's). The command line counts more than the environment, "
        "that more than the file. Instance options given here apply to every model, over its presets.",
        width,
    )
    return "\n".join([*head, *_groups(width), *foot, "", *_refused(width)]) + "\n"


def _refused(width: int) -> list[str]:
    """Options of llama-server that the table knows only to refuse them, by their first names."""
    names = ", ".join(row.name for row in options.ROWS if not row.help)
    return [
        *textwrap.wrap(
            "Options of llama-server that llamad cannot honour yet. They are refused, not ignored, except with a value "
            "that asks for what happens anyway:",
            width,
        ),
        *textwrap.wrap(
            names,
            width,
            initial_indent=" " * _INDENT,
            subsequent_indent=" " * _INDENT,
            break_on_hyphens=False,
        ),
    ]


def _groups(width: int) -> list[str]:
    rows = [row for row in options.ROWS if row.scope is not Scope.MODEL and row.help]
    lines = []
    for group in dict.fromkeys(row.group for row in rows):
        lines.append(f"{group}:")
        for row in rows:
            if row.group == group:
                lines += _row(row, width)
        lines.append("")
    return lines


def _row(row: Option, width: int) -> list[str]:
    left = " " * _INDENT + spelled(row)
    text = row.help + _default(row)
    body = [line.replace(_GLUE, " ") for line in textwrap.wrap(text, width - _COLUMN, break_on_hyphens=False)]
    if len(left) > _COLUMN - 2:
        return [left, *(" " * _COLUMN + line for line in body)]
    return [left.ljust(_COLUMN) + body[0], *(" " * _COLUMN + line for line in body[1:])]


def spelled(row: Option) -> str:
    """`-c, --ctx-size N`, `--mmap, --no-mmap`."""
    others = [f"-{name}" if len(name) <= 3 else f"--{name}" for name in row.also]
    names = [*others, f"--{row.name}", *(f"--{name}" for name in row.negatives)]
    return ", ".join(names) + (f" {row.kind.hint}" if row.kind.hint else "")


def _default(row: Option) -> str:
    text = row.default_text or ("" if row.default is None else row.kind.render(row.default))
    if not text:
        return ""
    said = f"(default: {text})"
    return " " + (said.replace(" ", _GLUE) if len(said) <= _GLUED_MAX else said)
