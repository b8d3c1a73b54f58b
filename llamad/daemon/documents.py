"""The admin API's documents, made from views. Pure: times come in as arguments, nothing is looked up.

Shapes: ARCHITECTURE 4.3. Field names and the words of `status.value` are llama.cpp's router's; ours are under `llamad`.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import msgspec

from llamad import BUILD_INFO, __version__
from llamad.config.settings import ModelSpec, Problem, RequestRules, Settings
from llamad.core.ledger import HOST
from llamad.core.view import DeviceView, ModelView, QueueView
from llamad.daemon.monitor import Instance
from llamad.daemon.reports import device_totals


def model_document(
    view: ModelView,
    spec: ModelSpec | None,
    instance: Instance | None,
    *,
    now: float,
    used: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """One model object. `now` is on the scheduler's clock; `used`: bytes by device that its process really has."""
    spec = spec or (instance.spec if instance else ModelSpec(view.name, ""))
    return {
        "id": view.name,
        "aliases": list(view.aliases),
        "tags": list(spec.tags),
        "object": "model",
        "owned_by": "llamad",
        "created": spec.created,
        "status": status_document(view, spec),
        # Pictures are refused by all instances, also by those with a projector.
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "source": spec.source,
        # What is in a cache could be; there is none yet.
        "can_remove": False,
        "meta": _meta(spec, instance),
        "llamad": {**_ours(view, instance, now), **_memory(view, instance, used or {}), **_rules(spec)},
    }


def status_document(view: ModelView, spec: ModelSpec) -> dict[str, Any]:
    """llama.cpp's `status`: `failed` and `exit_code` only after a failure, `progress` only while loading."""
    status: dict[str, Any] = {"value": view.state, "args": list(spec.args), "preset": spec.preset}
    if view.failed:
        status["failed"] = True
        status["exit_code"] = exit_code_of(view)
    if view.state == "loading":
        status["progress"] = round(view.progress, 3)
    return status


def exit_code_of(view: ModelView) -> int | None:
    """As a shell shows it: 128 + n for a signal."""
    return 128 + view.signal if view.signal is not None else view.exit_code


def _meta(spec: ModelSpec, instance: Instance | None) -> dict[str, Any]:
    facts = spec.facts
    from_file = {
        "architecture": facts.architecture,
        "n_vocab": facts.n_vocab,
        "n_ctx_train": facts.n_ctx_train,
        "n_embd": facts.n_embd,
        "n_params": facts.n_params,
        "size": facts.size_bytes,
        "file_type": facts.file_type,
    }
    meta = {key: value for key, value in from_file.items() if value}
    if instance is not None:
        payload = instance.ready_payload
        told = payload.get("meta")
        meta.update(told if isinstance(told, dict) else {})
        shown = {"n_ctx": "n_ctx_slot", "n_slots": "n_slots"}
        meta.update({name: payload[key] for name, key in shown.items() if key in payload})
    return meta


def _ours(view: ModelView, instance: Instance | None, now: float) -> dict[str, Any]:
    return {
        "reason": view.reason,
        "since_s": _ago(view.since, now),
        "stopping": view.stopping,
        "draining": view.draining,
        "signal": view.signal,
        "leases": view.leases,
        "waiting": view.waiting,
        "last_used_s": _ago(view.last_used_at, now),
        "loaded_s": _ago(view.loaded_at, now),
        "pid": instance.pid if instance else None,
        "child": view.child or None,
        "pinned": view.pinned,
        "held_for_s": max(0.0, round(view.held_until - now, 3)) if view.held_until is not None else None,
        "failures": view.failures,
        "retry_in_s": max(0.0, round(view.retry_at - now, 3)) if view.retry_at is not None else None,
    }


def _rules(spec: ModelSpec) -> dict[str, Any]:
    """What is done to requests, under the model's own name and aliases, and under each variant's."""
    return {
        "rules": _rules_document(spec.rules),
        "variants": {name: _rules_document(rules) for name, rules in spec.variants.items()},
    }


def _rules_document(rules: RequestRules) -> dict[str, Any]:
    return {
        "default": {name: msgspec.json.decode(text) for name, text in rules.default.items()},
        "force": {name: msgspec.json.decode(text) for name, text in rules.force.items()},
        "remove": list(rules.remove),
    }


def _memory(view: ModelView, instance: Instance | None, used: Mapping[str, int]) -> dict[str, Any]:
    """What it holds on the books, or by its own word where there are none, beside what its process really has."""
    told = device_totals(instance.ready_payload.get("bytes")) if instance else None
    held = view.held or told or {}
    memory = {name: _holding(amount, used.get(name)) for name, amount in held.items()}
    need = view.need and {"minimum": dict(view.need.minimum), "maximum": dict(view.need.maximum)}
    placement = [name for name, amount in held.items() if name != HOST and amount]
    return {
        "memory": memory if instance else None,
        "need": need,
        "placement": placement if instance else None,
    }


def _holding(held: int, measured: int | None) -> dict[str, int | None]:
    discrepancy = measured - held if measured is not None else None
    return {"held_bytes": held, "measured_bytes": measured, "discrepancy_bytes": discrepancy}


def failure_document(view: ModelView, now: float) -> dict[str, Any] | None:
    """The last failure, also of a model that is loaded again by now."""
    failure = view.failure
    if failure is None:
        return None
    return {
        "kind": failure.kind,
        "message": failure.message,
        "count": failure.count,
        "retry_in_s": max(0.0, round(failure.retry_at - now, 3)),
    }


def device_document(device: DeviceView, read_at: float | None, now: float) -> dict[str, Any]:
    """The books of one memory. `read_age_s` null: what was seen is outdated, and is looked at again."""
    return {
        "name": device.name,
        "total_bytes": device.total,
        "external_bytes": device.external,
        "held_bytes": device.held,
        "margin_bytes": device.margin,
        "available_bytes": device.available,
        "read_age_s": _ago(read_at, now),
    }


def _ago(moment: float | None, now: float) -> float | None:
    return None if moment is None else max(0.0, round(now - moment, 3))


def queue_document(entry: QueueView, now: float) -> dict[str, Any]:
    return {
        "model": entry.model,
        "waiters": entry.waiters,
        "waited_s": _ago(entry.since, now),
        "draining": list(entry.draining),
    }


def limits_document(settings: Settings) -> dict[str, Any]:
    return {
        "models_max": settings.models_max,
        "models_autoload": settings.models_autoload,
        "drain_after_s": settings.drain_after_s,
        "queue_timeout_s": settings.queue_timeout_s,
        "max_queued": settings.max_queued,
        "load_timeout_s": settings.load_timeout_s,
        "stall_timeout_s": settings.stall_timeout_s,
        "models_memory_margin_bytes": settings.models_memory_margin_bytes,
    }


def problem_document(problem: Problem) -> dict[str, Any]:
    return {"file": problem.file, "line": problem.line, "message": problem.message, "model": problem.model}


def props_document(settings: Settings) -> dict[str, Any]:
    """What llama.cpp's router says of itself at `/props` without a model, with its places for what only a model has."""
    return {
        "role": "router",
        "max_instances": settings.models_max,
        "models_autoload": settings.models_autoload,
        "model_alias": "llamad",
        "model_path": "none",
        "default_generation_settings": {"params": None, "n_ctx": 0},
        "ui_settings": {},
        "build_info": BUILD_INFO,
        "cors_proxy_enabled": False,
    }


def version_document() -> dict[str, Any]:
    return {"version": __version__, "python": platform.python_version(), "platform": platform.platform()}
