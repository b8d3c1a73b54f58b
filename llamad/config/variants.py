"""Variants: other names of a model, with other request rules and no process of their own. Pure.

    [chat]
    model = /srv/models/chat.gguf

    [chat-exact]
    variant-of = chat
    default.temperature = 0

What a variant does not write it takes from its model, rule by rule. It may write nothing that the process would have to
know: there is only one.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from llamad.config import rules
from llamad.config.layers import Layer
from llamad.config.merge import Draft, Preset
from llamad.config.settings import OptionValue, Problem

OF = "variant-of"


def split(presets: Sequence[Preset]) -> tuple[list[Preset], list[Preset]]:
    """Sections that are models, and sections that are variants."""
    models = [preset for preset in presets if OF not in preset.layer]
    return models, [preset for preset in presets if OF in preset.layer]


def attach(
    drafts: Sequence[Draft], others: Sequence[Preset], known: set[str]
) -> tuple[list[Draft], list[Problem]]:
    """The models with their variants, and what is wrong with the others.

    `known`: names that were found, and models with a problem of their own. The latter's variants go with them.
    """
    by_name = {draft.name: draft for draft in drafts}
    held: dict[str, dict[str, Layer]] = {}
    problems = []
    for preset in others:
        faults = _faults(preset, by_name.keys(), known)
        problems += faults
        base = str(preset.layer[OF].value)
        if not faults and base in by_name:
            held.setdefault(base, {})[preset.name] = {
                name: setting for name, setting in preset.layer.items() if rules.is_rule(name)
            }
    return [replace(draft, variants=held.get(draft.name, {})) for draft in drafts], problems


def _faults(preset: Preset, models: Container[OptionValue], known: Container[OptionValue]) -> list[Problem]:
    base = preset.layer[OF]
    faults = [
        Problem(
            setting.file,
            setting.line,
            f"cannot set '{name}' for a variant: it has no process of its own, only default.…, force.… and remove",
            model=preset.name,
        )
        for name, setting in preset.layer.items()
        if name != OF and not rules.is_rule(name)
    ]
    if preset.name in known:
        message = f"cannot be a variant: a model called '{preset.name}' was found"
        faults.append(Problem(preset.file, preset.line, message, model=preset.name))
    elif base.value not in models and base.value not in known:
        message = f"cannot be a variant of '{base.value}': there is no such model"
        faults.append(Problem(base.file, base.line, message, model=preset.name))
    return faults
