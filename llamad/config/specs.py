"""A merged model and its opened file make a ModelSpec: typed fields, `args`, preset text, fingerprint. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from llamad.config import ini, rules
from llamad.config.layers import Layer, Setting
from llamad.config.merge import Draft
from llamad.config.option import Scope
from llamad.config.settings import ModelSpec, OptionValue, RequestRules
from llamad.config.sources import ModelFile

# Options of instances that the supervisor acts on: a change must not replace a process.
_SUPERVISORS = frozenset(("sleep-idle-seconds", "unload-idle-seconds"))
_TEXT_ONLY = "its multimodal projector is not used yet: the model serves text only"
_ENV = "env."


def build(draft: Draft, file: ModelFile, mmproj: str, stop_timeout_s: float) -> ModelSpec:
    """The finished value. `stop_timeout_s`: the daemon's, for a model that says nothing."""
    instance = {
        name: setting.value
        for name, setting in draft.layer.items()
        if setting.option.scope is Scope.INSTANCE and name not in _SUPERVISORS
    }
    spec = ModelSpec(
        name=draft.name,
        path=file.path,
        shards=file.shards,
        mmproj=mmproj,
        aliases=tuple(alias for alias in _words(draft, "alias") if alias != draft.name),
        tags=_words(draft, "tags"),
        source=draft.source,
        options=dict(sorted(instance.items())),
        load_on_startup=bool(draft.value("load-on-startup", False)),
        stop_timeout_s=float(_number(draft.value("stop-timeout", stop_timeout_s))),
        pinned=bool(draft.value("pinned", False)),
        priority=int(_number(draft.value("priority", 0))),
        concurrency_limit=int(_number(draft.value("concurrency-limit", 0))),
        sleep_idle_s=float(_number(draft.value("sleep-idle-seconds", 0.0))),
        unload_idle_s=float(_number(draft.value("unload-idle-seconds", 0.0))),
        unlisted=bool(draft.value("unlisted", False)),
        env=_environment(draft),
        engine=str(draft.value("engine", "llamad")),
        rules=_rules(draft.layer),
        variants={name: _rules({**draft.layer, **layer}) for name, layer in sorted(draft.variants.items())},
        facts=file.facts,
        created=file.created,
        files=file.identity,
        notes=(*draft.notes, _TEXT_ONLY) if mmproj else draft.notes,
    )
    settings = sorted(draft.layer.values(), key=lambda setting: setting.option.name)
    return replace(
        spec,
        args=_args(spec, settings),
        preset=_preset(spec, settings),
        fingerprint=_fingerprint(spec, file),
    )


def _words(draft: Draft, option: str) -> tuple[str, ...]:
    value = draft.value(option, ())
    return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else ()


def _number(value: OptionValue) -> int | float:
    assert isinstance(value, int | float)
    return value


def _rules(layer: Layer) -> RequestRules:
    return rules.build({name: setting.value for name, setting in layer.items()})


def _environment(draft: Draft) -> dict[str, str]:
    return {
        name.removeprefix(_ENV): str(setting.value)
        for name, setting in sorted(draft.layer.items())
        if name.startswith(_ENV)
    }


def _args(spec: ModelSpec, settings: Iterable[Setting]) -> tuple[str, ...]:
    """The instance's options as llama-server would be given them, with the program's name first."""
    args = ["llamad", "--model", spec.path]
    if spec.aliases:
        args += ["--alias", ",".join(spec.aliases)]
    for setting in settings:
        option = setting.option
        if option.scope is not Scope.INSTANCE:
            continue
        if not option.is_flag:
            args += [f"--{option.name}", option.kind.render(setting.value)]
        elif setting.value:
            args.append(f"--{option.name}")
        elif option.negatives:
            args.append(f"--{option.negatives[0]}")
    return tuple(args)


def _preset(spec: ModelSpec, settings: Iterable[Setting]) -> str:
    """The section of models.ini that alone would make this model, but for its environment.

    Clients see it, and what stands in an environment is often a token.
    """
    entries = [("model", spec.path)]
    if spec.mmproj:
        entries.append(("mmproj", spec.mmproj))
    for setting in settings:
        if setting.option.name not in ("model", "mmproj") and not setting.option.name.startswith(_ENV):
            entries.append((setting.option.name, setting.option.kind.render(setting.value)))
    return ini.render(spec.name, entries)


def _fingerprint(spec: ModelSpec, file: ModelFile) -> str:
    """What a running instance was started with. Names, pins and lists are the supervisor's and are not in it."""
    what: dict[str, Any] = {
        "path": spec.path,
        "files": file.identity,
        "options": dict(spec.options),
        "env": dict(spec.env),
        "engine": spec.engine,
    }
    text = json.dumps(what, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
