"""Files that a model is loaded with: whether they are what their option says, and fit the model as far as heads tell."""

from __future__ import annotations

import os
from collections.abc import Iterator

from llamad.config import files, sources
from llamad.config.file_list import FileList
from llamad.config.gguf import Head, read_head
from llamad.config.layers import Layer
from llamad.config.settings import GgufFacts

# As llama-server has it: vocabularies of one family differ in tokens that fill up the end.
_FILLING_MAX = 128


def first_fault(layer: Layer, facts: GgufFacts) -> tuple[str, str] | None:
    """The option that is to blame, and why; None if all is well. `layer` has absolute paths, `facts` are the model's."""
    return next(_faults(layer, facts), None)


def _faults(layer: Layer, facts: GgufFacts) -> Iterator[tuple[str, str]]:
    for name, setting in layer.items():
        kind, value = setting.option.kind, setting.value
        for path in kind.paths(value) if isinstance(kind, FileList) and isinstance(value, tuple) else ():
            reason = _adapter_fault(path, facts)
            if reason:
                yield name, f"cannot use '{path}': {reason}"
    types = layer.get("spec-type")
    draft = layer.get("spec-draft-model")
    if types is not None and isinstance(types.value, tuple) and "draft-simple" in types.value and not draft:
        yield "spec-type", "cannot draft with a small model: spec-draft-model names none"
    if draft is not None:
        reason = _draft_fault(str(draft.value), facts)
        if reason:
            yield "spec-draft-model", f"cannot draft with a small model: {reason}"


def _adapter_fault(path: str, facts: GgufFacts) -> str:
    try:
        head = _head(path)
    except (OSError, ValueError) as error:
        return str(error)
    if head.text("general.type") != "adapter" or head.text("adapter.type") != "lora":
        return "it is no LoRA adapter"
    architecture = head.text("general.architecture")
    if architecture != facts.architecture:
        return f"it is for models of the architecture {architecture!r}, not {facts.architecture!r}"
    return ""


def _draft_fault(path: str, facts: GgufFacts) -> str:
    try:
        n_vocab = sources.read_model(path).facts.n_vocab
    except ValueError as error:
        return str(error)
    if n_vocab and facts.n_vocab and abs(n_vocab - facts.n_vocab) > _FILLING_MAX:
        return f"the vocabulary of '{path}' has {n_vocab} tokens, the model's {facts.n_vocab}"
    return ""


def _head(path: str) -> Head:
    with files.open_regular(path) as file:
        return read_head(file, os.fstat(file.fileno()).st_size)
