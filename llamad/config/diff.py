"""What a reload changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields

from llamad.config import options
from llamad.config.settings import ModelSpec, Registry, Settings


@dataclass(frozen=True, slots=True)
class RegistryDiff:
    """Names of models, sorted.

    `changed`: a running instance has to be replaced. `relabelled`: only what the supervisor keeps differs (aliases,
    tags, pins, priorities, time-outs); such a model is in `unchanged`, too.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    relabelled: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.relabelled)


@dataclass(frozen=True, slots=True)
class SettingsDiff:
    """Names of daemon options: those that a reload brings into force, and those that wait for a restart."""

    reloaded: tuple[str, ...] = ()
    restart_needed: tuple[str, ...] = ()


def diff_registries(old: Registry, new: Registry) -> RegistryDiff:
    """Models by what has to happen to them."""
    both = sorted(old.models.keys() & new.models.keys())
    changed = [name for name in both if old.models[name].fingerprint != new.models[name].fingerprint]
    unchanged = [name for name in both if name not in set(changed)]
    return RegistryDiff(
        added=tuple(sorted(new.models.keys() - old.models.keys())),
        changed=tuple(changed),
        removed=tuple(sorted(old.models.keys() - new.models.keys())),
        unchanged=tuple(unchanged),
        relabelled=tuple(
            name for name in unchanged if _labels(old.models[name]) != _labels(new.models[name])
        ),
    )


def _labels(spec: ModelSpec) -> tuple[object, ...]:
    return (
        spec.aliases,
        spec.rules,
        spec.variants,
        spec.tags,
        spec.pinned,
        spec.priority,
        spec.concurrency_limit,
        spec.sleep_idle_s,
        spec.unload_idle_s,
        spec.unlisted,
        spec.stop_timeout_s,
        spec.load_on_startup,
        spec.mmproj,
    )


def diff_settings(old: Settings, new: Settings) -> SettingsDiff:
    """Daemon options by whether a reload can follow them."""
    rows = options.by_setting()
    differing = [
        rows[entry.name]
        for entry in fields(Settings)
        if entry.name in rows and getattr(old, entry.name) != getattr(new, entry.name)
    ]
    return SettingsDiff(
        reloaded=tuple(row.name for row in differing if not row.restart),
        restart_needed=tuple(row.name for row in differing if row.restart),
    )
