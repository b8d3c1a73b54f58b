"""The models from their sources: reads the models directory, the presets and every model's head."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from llamad.config import beside, files, ini, layers, merge, options, sources, specs, variants
from llamad.config.file_list import FileList
from llamad.config.layers import Layer
from llamad.config.merge import Draft, Preset
from llamad.config.option import Scope
from llamad.config.settings import ModelSpec, Problem, Registry, Settings
from llamad.config.values import Text

Read = Callable[[str], bytes]
"""Reads a configuration file, whole."""


class _FaultError(Exception):
    """What is wrong with a model, and the option to blame."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


def build_registry(settings: Settings, daemon: Layer, read: Read) -> Registry:
    """Every model that can be served and everything that is wrong; a model with a problem is left out."""
    found, problems = _scan(settings.models_dir, daemon)
    presets, for_all, preset_problems = _read_presets(settings.models_preset, daemon, read)
    faulty = frozenset(problem.model for problem in preset_problems)
    presets, others = variants.split(presets)
    taken = frozenset(preset.name for preset in others)
    drafts, merge_problems = merge.merge(found, presets, for_all, daemon, faulty, taken)
    drafts, variant_problems = variants.attach(drafts, others, {item.name for item in found} | faulty)
    problems += preset_problems + merge_problems + variant_problems
    models: dict[str, ModelSpec] = {}
    bad = {problem.model for problem in problems}
    for draft in drafts:
        if draft.name in bad:
            continue
        try:
            models[draft.name] = _open(draft, settings.stop_timeout_s)
        except sources.NoModelError as error:
            # Lying in the directory is no mistake; being named by a preset is.
            if draft.patched:
                problems.append(_at(draft, "model", str(error)))
        except _FaultError as error:
            problems.append(_at(draft, error.option, str(error)))
    return Registry(models, tuple(problems))


def _at(draft: Draft, option: str, message: str) -> Problem:
    file, line = draft.place(option)
    if not line:
        # The file itself is the place, and says its path already.
        message = message.replace(f"'{file}'", "this file")
    return Problem(file, line, message, model=draft.name)


def _scan(directory: str, daemon: Layer) -> tuple[list[sources.Found], list[Problem]]:
    if not directory:
        return [], []
    try:
        return sources.scan_models_dir(directory), []
    except OSError as error:
        message = files.why(error, f"the models directory '{directory}'")
    except ValueError as error:
        message = str(error)
    return [], [_of_daemon(daemon, "models-dir", directory, message)]


def _of_daemon(daemon: Layer, option: str, path: str, message: str) -> Problem:
    """A fault of what a daemon option names; blamed on the path where that is the default."""
    setting = daemon.get(option)
    file, line = (setting.file, setting.line) if setting else (path, 0)
    return Problem(file, line, message, fatal=True)


def _read_presets(path: str, daemon: Layer, read: Read) -> tuple[list[Preset], Layer, list[Problem]]:
    """The presets, the layer of `[*]`, and what is wrong in the file."""
    if not path:
        return [], {}, []
    try:
        data = read(path)
    except OSError as error:
        message = files.why(error, f"the presets '{path}'")
        return [], {}, [_of_daemon(daemon, "models-preset", path, message)]
    except ValueError as error:
        message = f"cannot use the presets '{path}': {error}"
        return [], {}, [_of_daemon(daemon, "models-preset", path, message)]
    text, problems = ini.decode(data, path)
    sections, faults = ini.parse(text, path)
    presets, for_all, section_faults = _read_sections(sections, path)
    # A fault in [*] belongs to no model: the rest of the file still counts.
    problems += [replace(fault, model="") if fault.model == merge.ALL else fault for fault in faults]
    return presets, for_all, problems + section_faults


def _read_sections(sections: Iterable[ini.Section], path: str) -> tuple[list[Preset], Layer, list[Problem]]:
    presets: list[Preset] = []
    for_all: Layer = {}
    problems: list[Problem] = []
    for section in sections:
        if not section.name:
            problems += _check_preamble(section, path)
            continue
        everyone = section.name == merge.ALL
        layer, faults = layers.read_entries(
            section.entries,
            path,
            options.PRESET_SCOPES,
            model="" if everyone else section.name,
            for_all=everyone,
        )
        problems += faults
        if everyone:
            for_all = layer
        else:
            presets.append(Preset(section.name, path, section.line, layer))
    return presets, for_all, problems


def _check_preamble(section: ini.Section, path: str) -> list[Problem]:
    """Before the first section only `version = 1` may stand."""
    problems = []
    for entry in section.entries:
        if entry.key != "version":
            message = f"cannot set '{entry.key}' before the first section: write it under [*] or [MODEL]"
        elif entry.value != "1":
            message = f"cannot read version {entry.value!r} of the preset format: only 1"
        else:
            continue
        problems.append(Problem(path, entry.line, message))
    return problems


def _open(draft: Draft, stop_timeout_s: float) -> ModelSpec:
    """Look at the files that a draft names. _FaultError says what is wrong, and which option says so."""
    mmproj = files.absolute(draft.mmproj) if draft.mmproj else ""
    if mmproj and not os.path.isfile(mmproj):
        raise _FaultError("mmproj", f"cannot find the projector '{mmproj}'")
    draft, extra = _open_named_files(draft)
    try:
        file = sources.read_model(files.absolute(draft.path))
    except sources.NoModelError:
        raise
    except ValueError as error:
        raise _FaultError("model", str(error)) from None
    fault = beside.first_fault(draft.layer, file.facts)
    if fault is not None:
        raise _FaultError(*fault)
    return specs.build(draft, replace(file, identity=file.identity + extra), mmproj, stop_timeout_s)


def _open_named_files(draft: Draft) -> tuple[Draft, tuple[str, ...]]:
    """The draft with the paths of instance options made absolute, and what tells that such a file has changed."""
    layer, identity = dict(draft.layer), []
    for name, setting in draft.layer.items():
        if setting.option.scope is not Scope.INSTANCE:
            continue
        kind, value = setting.option.kind, setting.value
        if isinstance(kind, Text) and kind.directory:
            path = files.absolute(str(value))
            if not os.path.isdir(path):
                raise _FaultError(name, f"cannot use '{path}': there is no such directory")
            layer[name] = replace(setting, value=path)
        elif isinstance(kind, Text) and kind.path:
            path = files.absolute(str(value))
            identity.append(_identity(name, path))
            layer[name] = replace(setting, value=path)
        elif isinstance(kind, FileList) and isinstance(value, tuple):
            paths = [files.absolute(path) for path in kind.paths(value)]
            identity += [_identity(name, path) for path in paths]
            layer[name] = replace(setting, value=kind.with_paths(value, paths))
    return replace(draft, layer=layer), tuple(identity)


def _identity(option: str, path: str) -> str:
    """What tells that a file has changed. Raises _FaultError if it cannot be opened."""
    try:
        with files.open_regular(path) as file:
            return sources.identity(path, os.fstat(file.fileno()))
    except OSError as error:
        raise _FaultError(option, files.why(error, f"'{path}'")) from None
    except ValueError as error:
        raise _FaultError(option, f"cannot use '{path}': {error}") from None
