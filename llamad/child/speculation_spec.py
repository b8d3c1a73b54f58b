"""What the options about speculation mean for the engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llamad.engine.drafting import DraftModelSettings, HashSettings, NgramSettings, SpeculationSettings


def parse_speculation(options: Mapping[str, Any]) -> SpeculationSettings:
    """From options by long name. ValueError or TypeError for values that no option has."""
    path = str(options.get("spec-draft-model") or "")
    types = _types(options, path)
    if "draft-simple" in types and not path:
        raise ValueError("spec-type draft-simple needs spec-draft-model")
    return SpeculationSettings(
        types=types,
        simple=_ngram(options, "spec-ngram-simple-"),
        map_k=_ngram(options, "spec-ngram-map-k-"),
        mod=HashSettings(
            n_match=_whole(options, "spec-ngram-mod-n-match", 24),
            n_min=_whole(options, "spec-ngram-mod-n-min", 48),
            n_max=_whole(options, "spec-ngram-mod-n-max", 64),
        ),
        draft=DraftModelSettings(
            path=path,
            n_max=_whole(options, "spec-draft-n-max", 3),
            n_min=_whole(options, "spec-draft-n-min", 0),
            p_min=float(options.get("spec-draft-p-min", 0.0)),
            n_gpu_layers=_whole(options, "spec-draft-ngl", -1),
            devices=tuple(re.findall(r"[^\s,]+", str(options.get("spec-draft-device") or ""))),
            threads=max(0, _whole(options, "spec-draft-threads", 0)),
            threads_batch=max(0, _whole(options, "spec-draft-threads-batch", 0)),
            cache_type_k=str(options.get("spec-draft-type-k", "f16")),
            cache_type_v=str(options.get("spec-draft-type-v", "f16")),
        ),
    )


def _types(options: Mapping[str, Any], path: str) -> tuple[str, ...]:
    """Without any, a draft model speaks for itself."""
    asked = [str(name) for name in options.get("spec-type") or ()]
    if options.get("spec-default"):
        asked.append("ngram-mod")
    if not asked and path:
        asked.append("draft-simple")
    return tuple(dict.fromkeys(name for name in asked if name != "none"))


def _ngram(options: Mapping[str, Any], prefix: str) -> NgramSettings:
    return NgramSettings(
        size_n=_whole(options, f"{prefix}size-n", 12),
        size_m=_whole(options, f"{prefix}size-m", 48),
        min_hits=_whole(options, f"{prefix}min-hits", 1),
    )


def _whole(options: Mapping[str, Any], name: str, default: int) -> int:
    value = options.get(name, default)
    if type(value) is not int:
        raise TypeError(f"option {name} is {value!r}, expected int")
    return value
