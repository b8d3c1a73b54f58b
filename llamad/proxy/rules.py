"""A model's request rules on a JSON body. Pure.

Only the top level is taken apart, and every value that no rule touches keeps its bytes. A body that no rule changes
comes back as the very same object.

Several spellings of one field count as one: a limit on `max_tokens` that `max_completion_tokens` goes around is none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.errors import RequestError
from llamad.json_values import VALUES_MAX, has_too_many_values
from llamad.wire.policy import Rules

_SAME = (
    frozenset(("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")),
    frozenset(("n", "n_cmpl")),
    frozenset(("repeat_penalty", "repetition_penalty")),
    frozenset(("stop", "stop_sequences")),
)
_NULL = b"null"

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode

Body = bytes | bytearray
Fields = dict[str, Any]


def apply(rules: Rules, body: Body) -> Body:
    """The body that the instance gets. Raises RequestError (400) for one that is no JSON object."""
    if has_too_many_values(body):
        raise RequestError(
            f"cannot read the body as JSON: it has over {VALUES_MAX} values", kind="too-many-values"
        )
    try:
        fields: Fields = dict(_decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the body as a JSON object: {error}", kind="bad-json") from None
    removed = _remove(fields, rules.remove)
    filled = _fill(fields, rules.default)
    forced = _force(fields, rules.force)
    return _encode(fields) if removed or filled or forced else body


def _remove(fields: Fields, names: tuple[str, ...]) -> bool:
    gone = [word for name in names for word in spellings(name) if word in fields]
    for word in set(gone):
        del fields[word]
    return bool(gone)


def _fill(fields: Fields, values: dict[str, Any]) -> bool:
    """What a request says as null it does not say."""
    missing = {name: value for name, value in values.items() if not _says(fields, name)}
    for name, value in missing.items():
        for word in spellings(name):
            fields.pop(word, None)
        fields[name] = value
    return bool(missing)


def _says(fields: Fields, name: str) -> bool:
    return any(word in fields and bytes(fields[word]).strip() != _NULL for word in spellings(name))


def _force(fields: Fields, values: dict[str, Any]) -> bool:
    changed = False
    for name, value in values.items():
        held = fields.get(name)
        others = [word for word in spellings(name) if word != name and word in fields]
        if not others and isinstance(held, msgspec.Raw) and bytes(held).strip() == _encode(value):
            continue
        for word in others:
            del fields[word]
        fields[name] = value
        changed = True
    return changed


def spellings(name: str) -> frozenset[str]:
    """All names of the field that `name` means."""
    return next((group for group in _SAME if name in group), frozenset((name,)))
