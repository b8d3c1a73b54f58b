"""What a reload changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamad.config.diff import RegistryDiff, diff_registries, diff_settings
from llamad.config.settings import ModelSpec, Registry, Settings

SETTINGS = Settings("/run", "/state")


def registry(*models: ModelSpec) -> Registry:
    return Registry({model.name: model for model in models})


def model(name: str, fingerprint: str = "1", **fields: object) -> ModelSpec:
    return replace(ModelSpec(name, f"/{name}.gguf", fingerprint=fingerprint), **fields)  # type: ignore[arg-type]


def test_models() -> None:
    old = registry(model("same"), model("changed"), model("gone"), model("renamed"))
    new = registry(
        model("new"), model("renamed", aliases=("x",)), model("changed", "2", pinned=True), model("same")
    )
    assert diff_registries(old, new) == RegistryDiff(
        added=("new",),
        changed=("changed",),
        removed=("gone",),
        unchanged=("renamed", "same"),
        relabelled=("renamed",),
    )


def test_nothing_is_false() -> None:
    assert not diff_registries(registry(model("a")), registry(model("a")))
    assert diff_registries(registry(), registry(model("a")))


@pytest.mark.parametrize(
    "label", ["aliases", "tags", "pinned", "priority", "unlisted", "stop_timeout_s", "load_on_startup"]
)
def test_labels(label: str) -> None:
    value: object = {"aliases": ("x",), "tags": ("x",), "priority": 1, "stop_timeout_s": 1.0}.get(label, True)
    diff = diff_registries(registry(model("a")), registry(model("a", **{label: value})))
    assert (diff.changed, diff.relabelled) == ((), ("a",))


def test_settings() -> None:
    new = replace(SETTINGS, port=1, listeners=("x:1",), models_max=9, drain_after_s=1.0, runtime_dir="/r")
    diff = diff_settings(SETTINGS, new)
    assert set(diff.reloaded) == {"models-max", "drain-after"}
    assert set(diff.restart_needed) == {"port", "runtime-dir"}
    assert diff_settings(SETTINGS, SETTINGS).restart_needed == ()
