"""Where models are found: the models directory, and whatever file a preset names.

    models-dir/
      A.gguf                          model "A"
      B/B-Q8_0.gguf, mmproj-F16.gguf  model "B", with its projector
      C/C-00001-of-00003.gguf, …      model "C", sharded
      D-00001-of-00002.gguf, …        model "D", sharded, without a directory of its own

Ids are names of files without `.gguf`, or of directories, exactly as they are spelled: never made up, so they are
stable. Looking (`scan_models_dir`) and opening (`read_model`) are apart, because a preset may say that another file is
meant, and then nobody needs to open the first one. Links are followed; deeper directories are not searched.

The Hugging Face cache will be a third source, below the models directory.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from llamad.config import files
from llamad.config.gguf import FILE_TYPES, Head, read_head
from llamad.config.settings import GgufFacts
from llamad.config.values import model_name

ENTRIES_MAX = 20_000
SHARDS_MAX = 1024
_SUFFIX = ".gguf"
_SHARD = re.compile(r"(?P<stem>.+)-(?P<part>[0-9]{5})-of-(?P<parts>[0-9]{5})\.gguf", re.IGNORECASE)
# general.type of files that a model may use but that are none.
_NO_MODELS = {"mmproj": "a multimodal projector", "adapter": "an adapter", "imatrix": "an importance matrix"}


@dataclass(frozen=True, slots=True)
class Found:
    """A model that a directory holds, not opened yet. `fault`: why it cannot be used, "" if nothing is known against it."""

    name: str
    path: str
    mmproj: str = ""
    notes: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's file or files, opened and found whole. `identity` changes when any of them does."""

    path: str
    shards: tuple[str, ...]
    facts: GgufFacts
    created: int
    identity: tuple[str, ...]


class NoModelError(ValueError):
    """The file is whole, but it is something that belongs to a model."""


def scan_models_dir(directory: str) -> list[Found]:
    """Every model of a directory, by name. OSError or ValueError if the directory itself cannot be read."""
    names = _names(directory)
    found = [*_group(directory, names, label="")]
    for name in names:
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            found += _scan_subdirectory(path, name)
    return _without_twins([_named(item) for item in found])


def _names(directory: str) -> list[str]:
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                names.append(entry.name)
            if len(names) > ENTRIES_MAX:
                raise ValueError(f"cannot use '{directory}': it has over {ENTRIES_MAX} entries")
    return sorted(names)


def _scan_subdirectory(path: str, name: str) -> list[Found]:
    """The one model of a sub-directory, none, or one that says why it cannot be chosen."""
    try:
        names = _names(path)
    except OSError as error:
        return [Found(name, path, fault=files.why(error, f"'{path}'"))]
    models = _group(path, names, label=name)
    if not models:
        return []
    if len(models) > 1:
        listed = ", ".join(os.path.basename(model.path) for model in models[:8])
        fault = f"cannot choose a model in '{path}': it holds {listed}; name one with 'model' in a preset"
        return [Found(name, path, fault=fault)]
    projectors = [os.path.join(path, entry) for entry in names if _is_projector(entry)]
    if len(projectors) > 1:
        note = (
            f"{len(projectors)} projectors lie beside it and none is used: name one with 'mmproj' in a preset"
        )
        return [replace(models[0], notes=(note,))]
    return [replace(models[0], mmproj=projectors[0] if projectors else "")]


def _group(directory: str, names: list[str], label: str) -> list[Found]:
    """The models among the files of one directory: single files, and the first parts of sharded ones."""
    models: dict[str, Found] = {}
    for name in names:
        path = os.path.join(directory, name)
        if not name.lower().endswith(_SUFFIX) or _is_projector(name) or os.path.isdir(path):
            continue
        shard = _SHARD.fullmatch(name)
        stem = shard["stem"] + "-of-" + shard["parts"] if shard else name
        own = shard["stem"] if shard else name[: -len(_SUFFIX)]
        models.setdefault(stem, Found(label or own, path))
    return list(models.values())


def _is_projector(name: str) -> bool:
    return name.lower().startswith("mmproj") and name.lower().endswith(_SUFFIX)


def _named(found: Found) -> Found:
    try:
        model_name(found.name)
    except ValueError as error:
        return replace(found, name=found.name.encode("utf-8", "backslashreplace").decode(), fault=str(error))
    return found


def _without_twins(found: list[Found]) -> list[Found]:
    """One entry a name; a name that two files claim is nobody's."""
    models: dict[str, Found] = {}
    for item in found:
        twin = models.get(item.name)
        if twin is None:
            models[item.name] = item
        else:
            fault = f"cannot tell '{twin.path}' from '{item.path}': both are named '{item.name}'"
            models[item.name] = replace(twin, fault=fault)
    return sorted(models.values(), key=lambda item: item.name)


def read_model(path: str) -> ModelFile:
    """Open a model's file and all its shards. ValueError says what is wrong, with the path in it."""
    parts = _parts(path)
    heads, identities, size_bytes, created = [], [], 0, 0
    for part in parts:
        head, status = _read_part(part)
        heads.append(head)
        identities.append(identity(part, status))
        size_bytes += status.st_size
        created = max(created, int(status.st_mtime))
    _check_shards(parts, heads)
    shards = parts if len(parts) > 1 else ()
    return ModelFile(path, shards, _facts(heads, size_bytes), created, tuple(identities))


def identity(path: str, status: os.stat_result) -> str:
    """Differs when another file, or the same file rewritten, is at `path`."""
    return f"{os.path.realpath(path)}:{status.st_size}:{status.st_mtime_ns}"


def _parts(path: str) -> tuple[str, ...]:
    directory, name = os.path.split(path)
    shard = _SHARD.fullmatch(name)
    if not shard:
        return (path,)
    part, count = int(shard["part"]), int(shard["parts"])
    if not 1 <= part <= count <= SHARDS_MAX:
        raise ValueError(f"cannot use '{path}': part {part} of {count} makes no sense")
    parts = tuple(
        os.path.join(directory, f"{shard['stem']}-{number:05d}-of-{count:05d}{_SUFFIX}")
        for number in range(1, count + 1)
    )
    missing = [item for item in parts if not os.path.exists(item)]
    if missing:
        raise ValueError(
            f"cannot use '{path}': part '{os.path.basename(missing[0])}' is missing{_more(missing)}"
        )
    if part != 1:
        raise ValueError(f"cannot load from part {part} of {count}: name '{parts[0]}'")
    return parts


def _more(missing: list[str]) -> str:
    return f", and {len(missing) - 1} more" if len(missing) > 1 else ""


def _read_part(path: str) -> tuple[Head, os.stat_result]:
    try:
        with files.open_regular(path) as file:
            status = os.fstat(file.fileno())
            return read_head(file, status.st_size), status
    except OSError as error:
        raise ValueError(files.why(error, f"'{path}'")) from None
    except ValueError as error:
        raise ValueError(f"cannot use '{path}': {error}") from None


def _check_shards(parts: tuple[str, ...], heads: list[Head]) -> None:
    kind = heads[0].text("general.type")
    what = _NO_MODELS.get("mmproj" if heads[0].text("general.architecture") == "clip" else kind)
    if what:
        raise NoModelError(f"cannot serve '{parts[0]}': it is {what}")
    for number, (part, head) in enumerate(zip(parts, heads, strict=True)):
        count = head.whole("split.count") or 1
        if count != len(parts) or head.whole("split.no") != number:
            raise ValueError(
                f"cannot use '{part}': it says it is part {head.whole('split.no') + 1} of {count}, "
                f"its name says {number + 1} of {len(parts)}"
            )


def _facts(heads: list[Head], size_bytes: int) -> GgufFacts:
    head = heads[0]
    architecture = head.text("general.architecture")
    n_vocab = head.length("tokenizer.ggml.tokens") or head.whole(f"{architecture}.vocab_size")
    return GgufFacts(
        architecture=architecture,
        name=head.text("general.name"),
        n_ctx_train=head.whole(f"{architecture}.context_length"),
        n_embd=head.whole(f"{architecture}.embedding_length"),
        n_layer=head.whole(f"{architecture}.block_count"),
        n_vocab=n_vocab,
        n_params=sum(item.n_params for item in heads),
        size_bytes=size_bytes,
        file_type=FILE_TYPES.get(head.whole("general.file_type"), "")
        if "general.file_type" in head.metadata
        else "",
        size_label=head.text("general.size_label"),
        n_shards=len(heads),
        has_chat_template="tokenizer.chat_template" in head.metadata,
    )
