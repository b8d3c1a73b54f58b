"""Logs of requests: what was asked for when. Read, checked, and made up for trying things out.

A log is CSV with a header line, or JSON lines; the first character tells which. Columns or keys, others are ignored:

    time_s      when the request came, in seconds from any origin; or
    time        the same as an ISO 8601 date and time
    model       what was asked for
    duration_s  how long it then held its model, from the grant on (optional)

Lines need not be in order of time.

What models need is a JSON object, model by model; "*" is for those that are not named, and all fields are optional:

    {"qwen3-8b": {"need": {"CUDA0": "7.9GiB", "host": "600MiB"}, "load_s": 12, "exit_s": 1, "duration_s": 4, "slots": 4,
                  "pinned": false, "priority": 0, "sleep_idle_s": 0, "unload_idle_s": 0},
     "*": {"need": {"CUDA0": "4GiB"}, "load_s": 8}}
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from llamad.units import parse_bytes

MODEL_REST = "*"


class TraceError(Exception):
    """A file that cannot be used, with its name and line."""


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """`time_s` counts from the first request of the log."""

    time_s: float
    model: str
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What one model takes, and how long things take with it."""

    need: Mapping[str, int] = field(default_factory=dict)
    load_s: float = 10.0
    exit_s: float = 1.0
    duration_s: float = 5.0
    slots: int = 0
    pinned: bool = False
    priority: int = 0
    sleep_idle_s: float = 0.0
    unload_idle_s: float = 0.0


# ---- reading


def read_trace(path: Path) -> list[Request]:
    """All requests in order of time, the first at 0. Raises TraceError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot read {path}: {error}") from error
    rows = _json_rows(path, text) if text.lstrip().startswith("{") else _csv_rows(text)
    requests = sorted(_request(f"{path}:{line}", row) for line, row in rows)
    if not requests:
        raise TraceError(f"cannot replay {path}: it has no requests")
    first_s = requests[0].time_s
    return [Request(x.time_s - first_s, x.model, x.duration_s) for x in requests]


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            row = _json(f"{path}:{number}", line)
            yield number, row


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    for row in reader:
        yield reader.line_num, row


def _json(where: str, text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise TraceError(f"{where}: cannot read this as JSON: {error}") from error
    if not isinstance(value, dict):
        raise TraceError(f"{where}: cannot use {text.strip()[:40]!r}: not a JSON object")
    return value


def _request(where: str, row: Mapping[str, Any]) -> Request:
    model, duration = row.get("model"), row.get("duration_s")
    if not model:
        raise TraceError(f"{where}: cannot find a model")
    return Request(
        _time_s(where, row),
        str(model),
        None if duration in (None, "") else _seconds(where, "duration_s", duration),
    )


def _time_s(where: str, row: Mapping[str, Any]) -> float:
    if row.get("time_s") not in (None, ""):
        return _seconds(where, "time_s", row["time_s"])
    if not row.get("time"):
        raise TraceError(f"{where}: cannot find time_s or time")
    try:
        return datetime.fromisoformat(str(row["time"])).timestamp()
    except ValueError as error:
        raise TraceError(f"{where}: cannot read {row['time']!r} as a date and time") from error


def _seconds(where: str, name: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0.0 <= seconds < 1e12:
        raise TraceError(f"{where}: cannot read {value!r} as {name}: a number of seconds is needed")
    return seconds


def read_needs(path: Path, default: Needs) -> dict[str, Needs]:
    """By model; `MODEL_REST` is always there. Raises TraceError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot read {path}: {error}") from error
    entries = _json(str(path), text)
    rest = _needs(f"{path}: {MODEL_REST}", entries.get(MODEL_REST, {}), default)
    return {name: _needs(f"{path}: {name}", entry, rest) for name, entry in entries.items()} | {
        MODEL_REST: rest
    }


def _needs(where: str, entry: Any, default: Needs) -> Needs:
    """What `entry` says, else what `default` says."""
    known = {f.name: getattr(default, f.name) for f in fields(Needs)}
    if not isinstance(entry, dict) or entry.keys() - known:
        raise TraceError(f"{where}: cannot use {entry!r}: known are {', '.join(known)}")
    values: dict[str, Any] = dict(known)
    for name, value in entry.items():
        values[name] = _need(where, value) if name == "need" else _plain(where, name, value, known[name])
    return Needs(**values)


def _need(where: str, amounts: Any) -> dict[str, int]:
    try:
        return {str(device): parse_bytes(str(amount)) for device, amount in amounts.items()}
    except (AttributeError, ValueError) as error:
        raise TraceError(f"{where}: cannot read its need: {error}") from error


def _plain(where: str, name: str, value: Any, like: Any) -> Any:
    """A truth value, a whole number or seconds, as the field is."""
    if isinstance(like, bool) or name == "priority":
        if type(value) is not type(like):
            raise TraceError(f"{where}: cannot use {value!r} as {name}")
        return value
    seconds = _seconds(where, name, value)
    return int(seconds) if isinstance(like, int) else seconds


# ---- making one up


def made_up(requests: int, models: int, span_s: float, seed: int) -> list[Request]:
    """Few models are asked for often and many seldom, in bursts, as people do."""
    rng = Random(seed)
    weights = [1 / (rank + 1) for rank in range(models)]
    found: list[Request] = []
    while len(found) < requests:
        at_s, (model,) = rng.uniform(0, span_s), rng.choices(range(models), weights)
        for _ in range(min(1 + int(rng.expovariate(0.3)), requests - len(found))):
            found.append(
                Request(round(at_s, 3), f"model-{model}", round(min(60.0, rng.lognormvariate(1, 1)), 3))
            )
            at_s += rng.expovariate(0.1)
    return sorted(found)


def write_trace(path: Path, requests: Iterable[Request]) -> None:
    """As CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time_s", "model", "duration_s"])
        writer.writerows((x.time_s, x.model, "" if x.duration_s is None else x.duration_s) for x in requests)
