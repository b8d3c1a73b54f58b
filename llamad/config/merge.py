"""Three sources and the daemon's own options, laid over each other. Pure.

For one option of one model, the last of these that says something counts:

    [*] of the presets  <  the model's own section  <  daemon options (command line > environment > llamad.ini)

and which models there are, the last of these:

    (Hugging Face cache, later)  <  models directory  <  presets

A section with the name of a found model patches it: it changes the keys it writes, the file stays unless it writes
`model`. A section with another name is a model of its own and has to write `model`, unless it is another name of a model
(see `variants`). `stop-timeout` is an option of both a model and the daemon; there the daemon's value is what a preset
may depart from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llamad.config.layers import Layer, Setting
from llamad.config.option import Scope
from llamad.config.settings import OptionValue, Problem
from llamad.config.sources import Found

ALL = "*"


@dataclass(frozen=True, slots=True)
class Preset:
    """One section of models.ini."""

    name: str
    file: str
    line: int
    layer: Layer = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """A model after merging, before anybody has opened its file.

    `source`: `models-dir` or `preset`, where it was found first. `path` is as written. `file:line` is where to look
    when something is wrong with it. `patched`: a preset speaks of it. `variants`: its further names, each with the
    request rules that its section writes.
    """

    name: str
    path: str
    source: str
    file: str
    line: int
    layer: Layer
    mmproj: str = ""
    notes: tuple[str, ...] = ()
    patched: bool = False
    variants: Mapping[str, Layer] = field(default_factory=dict)

    def value(self, option: str, default: OptionValue) -> OptionValue:
        setting = self.layer.get(option)
        return default if setting is None else setting.value

    def place(self, option: str) -> tuple[str, int]:
        """Where an option is set; if nowhere, the model itself."""
        setting = self.layer.get(option)
        return (self.file, self.line) if setting is None else (setting.file, setting.line)


def merge(
    found: Sequence[Found],
    presets: Sequence[Preset],
    for_all: Layer,
    daemon: Layer,
    faulty: frozenset[str] = frozenset(),
    taken: frozenset[str] = frozenset(),
) -> tuple[list[Draft], list[Problem]]:
    """Every model with its options, in a stable order: found ones by name, then presets as they are written.

    `faulty`: models with a problem already. They are not told that they have no file, because that may be the reason.
    `taken`: names of variants, which no alias may be.
    """
    sections = {preset.name: preset for preset in presets}
    own = {preset.name for preset in presets} - {item.name for item in found}
    over = {name: setting for name, setting in daemon.items() if setting.option.scope is Scope.INSTANCE}
    drafts, problems = [], []
    for item in found:
        preset = sections.get(item.name)
        draft = _patch(item, preset, {**for_all, **(preset.layer if preset else {}), **over})
        if item.fault and "model" not in draft.layer:
            problems.append(Problem(draft.file, draft.line, item.fault, model=item.name))
        else:
            drafts.append(draft)
    for preset in presets:
        if preset.name not in own:
            continue
        if "model" in preset.layer:
            drafts.append(_stand_alone(preset, {**for_all, **preset.layer, **over}))
        elif preset.name not in faulty:
            message = f"cannot serve '{preset.name}': no such model was found, and the preset has no 'model'"
            problems.append(Problem(preset.file, preset.line, message, model=preset.name))
    names = {item.name for item in found} | set(sections) | taken
    return drafts, problems + check_aliases(drafts, names)


def _patch(item: Found, preset: Preset | None, layer: Layer) -> Draft:
    moved = layer.get("model")
    file, line = (preset.file, preset.line) if preset else (item.path, 0)
    return Draft(
        name=item.name,
        path=str(moved.value) if moved else item.path,
        source="models-dir",
        file=file,
        line=line,
        layer=layer,
        # What lies beside the found file says nothing about another one.
        mmproj=_projector(layer, "" if moved else item.mmproj),
        notes=() if moved else item.notes,
        patched=preset is not None,
    )


def _stand_alone(preset: Preset, layer: Layer) -> Draft:
    return Draft(
        name=preset.name,
        path=str(layer["model"].value),
        source="preset",
        file=preset.file,
        line=preset.line,
        layer=layer,
        mmproj=_projector(layer, ""),
        patched=True,
    )


def _projector(layer: Layer, beside: str) -> str:
    """The projector that is written, else the one beside the model unless that is switched off."""
    written, automatic = layer.get("mmproj"), layer.get("mmproj-auto")
    if written is not None:
        return str(written.value)
    return "" if automatic is not None and not automatic.value else beside


def check_aliases(drafts: Sequence[Draft], names: set[str]) -> list[Problem]:
    """Aliases that another model has, as its name or as an alias of its own.

    The first model keeps an alias, the others are left out. A model that is left out still keeps its names: nobody
    may answer in its place.
    """
    owners: dict[str, tuple[Draft, Setting]] = {}
    problems = []
    for draft in drafts:
        setting = draft.layer.get("alias")
        if setting is None or not isinstance(setting.value, tuple):
            continue
        for alias in dict.fromkeys(setting.value):
            owner = owners.get(alias)
            if alias != draft.name and alias in names:
                message = f"cannot use the alias '{alias}': a model has this name"
            elif owner is not None:
                message = f"cannot use the alias '{alias}': '{owner[0].name}' has it on line {owner[1].line}"
            else:
                owners[alias] = (draft, setting)
                continue
            problems.append(Problem(setting.file, setting.line, message, model=draft.name))
    return problems
