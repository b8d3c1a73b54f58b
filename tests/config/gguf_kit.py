"""GGUF files of a few hundred bytes, written byte by byte, so that a test can spoil any one of them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

ALIGNMENT = 32


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(item: Any) -> bytes:
    """A metadata value with its type in front."""
    match item:
        case bool():
            return struct.pack("<I?", 7, item)
        case int():
            return struct.pack("<II", 4, item)
        case float():
            return struct.pack("<If", 6, item)
        case str():
            return struct.pack("<I", 8) + string(item)
        case list() if item and isinstance(item[0], str):
            return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(string, item))
        case list():
            return struct.pack("<IIQ", 9, 4, len(item)) + struct.pack(f"<{len(item)}I", *item)
    raise TypeError(item)


def head(
    metadata: dict[str, Any], tensors: list[tuple[str, tuple[int, ...], int, int]], version: int = 3
) -> bytes:
    """`tensors`: name, dimensions, type, offset."""
    data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, item in metadata.items():
        data += string(key) + value(item)
    for name, dims, kind, offset in tensors:
        data += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        data += struct.pack("<IQ", kind, offset)
    return data + b"\0" * (-len(data) % ALIGNMENT)


def model_bytes(**metadata: Any) -> bytes:
    """A llama with two tensors of 64 F32 elements in all; `metadata` adds keys, with `__` for dots."""
    keys = {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "general.size_label": "1K",
        "general.file_type": 2,
        "llama.context_length": 4096,
        "llama.embedding_length": 8,
        "llama.block_count": 1,
        "tokenizer.ggml.tokens": ["<s>", "a", "ż"],
        "tokenizer.chat_template": "{{ messages }}",
        **{key.replace("__", "."): item for key, item in metadata.items()},
    }
    return head(keys, [("a", (8, 4), 0, 0), ("b", (32,), 0, 128)]) + b"\0" * 256


def write_model(path: Path, **metadata: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model_bytes(**metadata))
    return path


def write_shards(folder: Path, stem: str, count: int) -> list[Path]:
    """All parts of a sharded model."""
    return [
        write_model(
            folder / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf", split__count=count, split__no=number
        )
        for number in range(count)
    ]
