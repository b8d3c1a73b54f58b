"""A model object of the API as rows and fields for people."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from llamad.cli.client import Document
from llamad.cli.output import print_table
from llamad.cli.text import NOTHING, ago, amounts, duration, memory, memory_total, scalar

HEADINGS = ("MODEL", "STATE", "KEPT", "LEASES", "WAITING", "MEMORY", "LAST USED", "REASON")
GIVES_WAY = ("MODEL", "REASON")


def print_models(models: Sequence[Document]) -> None:
    """The table that `status` and `list` share."""
    print_table(HEADINGS, [model_row(model) for model in models], wide=GIVES_WAY)


def model_row(model: Document) -> list[str]:
    ours = model.get("llamad") or {}
    return [
        str(model.get("id", "")),
        state_word(model),
        _kept(ours),
        str(ours.get("leases", 0)),
        str(ours.get("waiting", 0)),
        memory_total(ours.get("memory")),
        ago(ours.get("last_used_s")),
        str(ours.get("reason") or NOTHING),
    ]


def _kept(ours: Document) -> str:
    """`pinned`, or `held 9 m 30 s` for what is left of a hold."""
    left_s = ours.get("held_for_s")
    if left_s is not None:
        return f"held {duration(left_s)}"
    return "pinned" if ours.get("pinned") else NOTHING


def state_word(model: Document) -> str:
    """llama.cpp's word, or ours where that one hides what matters; with the share that is done while loading."""
    status, ours = model.get("status") or {}, model.get("llamad") or {}
    value = str(status.get("value") or "unknown")
    if status.get("failed"):
        return "failed"
    for word in ("stopping", "draining"):
        if ours.get(word):
            return word
    done = progress_share(status)
    return value if done is None or value not in ("loading", "downloading") else f"{value} {done:.0%}"


def progress_share(status: Document) -> float | None:
    """How much of a load is done, 0.0 to 1.0, or None when nothing is said."""
    progress = status.get("progress")
    value = progress.get("value") if isinstance(progress, dict) else progress
    return min(max(float(value), 0.0), 1.0) if isinstance(value, int | float) else None


def model_fields(model: Document) -> dict[str, str]:
    """Everything about one model that is worth a line; what is not said is left out."""
    status, ours = model.get("status") or {}, model.get("llamad") or {}
    fields = {
        "model": scalar("id", model.get("id")),
        "state": state_word(model),
        "reason": scalar("reason", ours.get("reason")),
        "exit code": scalar("exit_code", status.get("exit_code")),
        "signal": _signal_name(ours.get("signal")),
        "aliases": scalar("aliases", model.get("aliases")),
        "tags": scalar("tags", model.get("tags")),
        "source": scalar("source", model.get("source")),
        "takes": _modalities(model, "input_modalities"),
        "gives": _modalities(model, "output_modalities"),
        "process": _process(ours),
        "loaded": ago(ours.get("loaded_s")),
        "last used": ago(ours.get("last_used_s")),
        "leases": scalar("leases", ours.get("leases")),
        "waiting": scalar("waiting", ours.get("waiting")),
        "memory": memory(ours.get("memory")),
        "placed on": scalar("placement", ours.get("placement")),
        "needs": _needs(ours.get("need")),
        "pinned": scalar("pinned", ours.get("pinned")),
        "held for": duration(ours.get("held_for_s")),
        "failures": scalar("failures", ours.get("failures") or None),
        "next try in": duration(ours.get("retry_in_s")),
        "options": " ".join(_options(status)),
    }
    return {name: value for name, value in fields.items() if value not in ("", NOTHING)} | _meta(model)


def _needs(need: Any) -> str:
    """What it was measured to take; two figures where the context is still to be chosen."""
    if not isinstance(need, dict):
        return NOTHING
    least, most = need.get("minimum") or {}, need.get("maximum") or {}
    return amounts(least) if least == most else f"{amounts(least)} at least; {amounts(most)} at most"


def _meta(model: Document) -> dict[str, str]:
    meta: Any = model.get("meta")
    if not isinstance(meta, dict):
        return {}
    units = {"size": "size_bytes"}
    return {
        str(name): scalar(units.get(str(name), str(name)), value) for name, value in meta.items() if value
    }


def _options(status: Document) -> list[str]:
    """Without llama.cpp's first word, the name of a program: it cannot be called like this."""
    words = [str(word) for word in status.get("args") or []]
    return words if not words or words[0].startswith("-") else words[1:]


def _modalities(model: Document, direction: str) -> str:
    architecture = model.get("architecture")
    return scalar(direction, architecture.get(direction)) if isinstance(architecture, dict) else NOTHING


def _signal_name(number: Any) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return NOTHING


def _process(ours: Document) -> str:
    return f"pid {ours['pid']}, child {ours.get('child')}" if ours.get("pid") else ""
