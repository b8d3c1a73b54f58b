"""What the operator wants all answers of a model to conform to: read at the start, so that a bad file is noticed then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from llamad.api.generation import Generation
from llamad.api.schema import schema_text
from llamad.child.instance_spec import InstanceSpec
from llamad.engine.vocabulary import Rules
from llamad.errors import LlamadError

RULES_BYTES_MAX = 256 * 1024


def own_defaults(spec: InstanceSpec) -> Generation:
    """What requests get that say nothing. Raises LlamadError (kind `bad-rules`) for rules that cannot be read."""
    given = {name: text for name, text in spec.rules.items() if text}
    if len(given) > 1:
        raise LlamadError(f"cannot follow {' and '.join(sorted(given))} together: give one", kind="bad-rules")
    for name, text in given.items():
        kind = name.removesuffix("-file")
        text = _read(name, text) if name.endswith("-file") else text
        return replace(spec.defaults, rules=_rules(name, kind, text))
    return spec.defaults


def _rules(name: str, kind: str, text: str) -> Rules:
    if kind == "grammar":
        return Rules("gbnf", text)
    try:
        schema = msgspec.json.decode(text.encode(), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise LlamadError(f"cannot read {name} as a JSON object: {error}", kind="bad-rules") from error
    return Rules("json_schema", schema_text(schema))


def _read(name: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(RULES_BYTES_MAX + 1)
        if len(data) > RULES_BYTES_MAX:
            raise OSError(f"it has more than {RULES_BYTES_MAX} bytes")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise LlamadError(f"cannot read the {name} {path}: {error}", kind="bad-rules") from error
