"""What llama-server tells beside the text of an answer, where a request asks for it.

`timings_per_token`: `timings` with each document of a stream; `return_progress`: `prompt_progress` while the prompt is
evaluated; `return_tokens`: token ids in `tokens`; `verbose`: llama.cpp's own document as `__verbose` in OpenAI's;
`response_fields`: only these fields of llama.cpp's own document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llamad.api.answer import timings
from llamad.api.fields import Fields
from llamad.engine.vocabulary import Progress, Text

RESPONSE_FIELDS_MAX = 256


@dataclass(frozen=True, slots=True)
class Extras:
    """The fields named above, as a request has set them. `response_fields` empty: all."""

    timings_per_token: bool = False
    progress: bool = False
    tokens: bool = False
    verbose: bool = False
    response_fields: tuple[str, ...] = ()


def parse_extras(fields: Fields) -> Extras:
    """Raises RequestError that names the field."""
    return Extras(
        timings_per_token=fields.flag("timings_per_token", False),
        progress=fields.flag("return_progress", False),
        tokens=fields.flag("return_tokens", False),
        verbose=fields.flag("verbose", False),
        response_fields=_response_fields(fields),
    )


def _response_fields(fields: Fields) -> tuple[str, ...]:
    value = fields.array("response_fields") or []
    if len(value) > RESPONSE_FIELDS_MAX or not all(isinstance(path, str) for path in value):
        raise fields.wrong("response_fields", f"an array of at most {RESPONSE_FIELDS_MAX} names", value)
    return tuple(value)


def chosen(document: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """The fields at these paths (`generation_settings/seed`), each under its whole path; what is not there is left out."""
    if not paths:
        return document
    found = ((path, _at(document, path.split("/"))) for path in paths)
    return {path: value for path, value in found if value is not _NOTHING}


_NOTHING = object()


def _at(value: Any, names: list[str]) -> Any:
    for name in names:
        value = value.get(name, _NOTHING) if isinstance(value, dict) else _NOTHING
    return value


def timings_so_far(text: Text | Progress) -> dict[str, Any]:
    """A `timings` member, if this request is told them all along."""
    return {} if text.timings is None else {"timings": timings(text.timings)}


def prompt_progress(progress: Progress) -> dict[str, Any]:
    """A `prompt_progress` member, and `timings` where they are told all along. `processed` includes the `cache`d tokens,
    as llama-server counts."""
    return {
        "prompt_progress": {
            "total": progress.total,
            "cache": progress.cached,
            "processed": progress.processed,
            "time_ms": round(progress.spent_ms),
        }
    } | timings_so_far(progress)
