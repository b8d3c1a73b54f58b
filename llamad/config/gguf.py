"""The head of a GGUF file: metadata and tensor list, read without loading anything.

    "GGUF" u32 version (2, 3) · u64 tensors · u64 keys
    keys    × { string name · u32 type · value }           string = u64 length + bytes, array = u32 type + u64 count + values
    tensors × { string name · u32 dims · u64 × dims · u32 type · u64 offset }
    padding to general.alignment (32) · tensor data

All little-endian. The file may come from anywhere, so every length is checked against the file and a bound before it
is believed. Vocabularies (hundreds of thousands of strings) are walked over, not kept. It is read and not mapped:
a mapped file that somebody cuts short kills the reader.

Source: ggml's docs/gguf.md; block sizes from ggml-common.h.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

HEAD_BYTES_MAX = 256 << 20
KEYS_MAX = 1 << 16
TENSORS_MAX = 1 << 18
DIMS_MAX = 4
NAME_BYTES_MAX = 1 << 16
KEPT_BYTES_MAX = 4096
_CHUNK = 4 << 20

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}

# fmt: off
# type number: (elements, bytes) of a block
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
}

FILE_TYPES: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
    19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
    26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16",
    36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Length:
    """Stands in `Head.metadata` for a value that is not kept: the items of an array, the bytes of a long text."""

    count: int


Value = int | float | str | bool | Length


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before the tensor data. `data_end`: how long the file must at least be, in bytes."""

    metadata: Mapping[str, Value]
    n_tensors: int
    n_params: int
    data_end: int

    def text(self, key: str) -> str:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def whole(self, key: str) -> int:
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0

    def length(self, key: str) -> int:
        value = self.metadata.get(key)
        return value.count if isinstance(value, Length) else 0


def read_head(file: BinaryIO, size_bytes: int) -> Head:
    """The head of an open file of `size_bytes` bytes.

    ValueError gives the reason why it is none or not whole; it completes "cannot use FILE:".
    """
    if size_bytes == 0:
        raise ValueError("it is empty")
    source = _Source(file, size_bytes)
    n_tensors, n_keys = _read_counts(source)
    metadata: dict[str, Value] = {}
    for _ in range(n_keys):
        key = source.text(NAME_BYTES_MAX)
        metadata[key] = _read_value(source, source.u32())
    n_params, tensors_end = _read_tensors(source, n_tensors)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise ValueError(f"its alignment is {alignment}")
    data_start = -(-source.position // alignment) * alignment
    head = Head(metadata, n_tensors, n_params, data_start + tensors_end if n_tensors else source.position)
    if head.data_end > size_bytes:
        raise ValueError(f"it is truncated: {size_bytes} of {head.data_end} bytes are there")
    return head


def _read_counts(source: _Source) -> tuple[int, int]:
    magic = source.take(4)
    if magic != b"GGUF":
        raise ValueError(f"it is no GGUF file, it begins with {magic.decode('latin-1')!a}")
    version = source.u32()
    if version not in (2, 3):
        if int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3):
            raise ValueError("it is a big-endian GGUF file")
        raise ValueError(f"it has GGUF version {version}, not 2 or 3")
    n_tensors, n_keys = source.u64(), source.u64()
    if n_tensors > TENSORS_MAX or n_keys > KEYS_MAX:
        raise ValueError(f"it is damaged: it claims {n_tensors} tensors and {n_keys} keys")
    return n_tensors, n_keys


def _read_value(source: _Source, kind: int) -> Value:
    if kind == _STRING:
        length = source.u64()
        if length > KEPT_BYTES_MAX:
            source.skip(length)
            return Length(length)
        return source.take(length).decode("utf-8", "replace")
    if kind == _ARRAY:
        return _skip_array(source)
    if kind not in _SCALARS:
        raise ValueError(f"it has a value of type {kind}")
    (value,) = source.unpack("<" + _SCALARS[kind])
    return bool(value) if kind == _BOOL else value


def _skip_array(source: _Source) -> Length:
    kind, count = source.u32(), source.u64()
    if kind == _STRING:
        source.skip_strings(count)
    elif kind in _SCALARS:
        source.skip(count * struct.calcsize("<" + _SCALARS[kind]))
    else:
        raise ValueError(f"it has an array of type {kind}")
    return Length(count)


def _read_tensors(source: _Source, count: int) -> tuple[int, int]:
    """Elements in all tensors, and where the last one ends behind the start of the data."""
    n_params = end = 0
    for _ in range(count):
        source.skip_text(NAME_BYTES_MAX)
        n_dims = source.u32()
        if n_dims > DIMS_MAX:
            raise ValueError(f"it has a tensor of {n_dims} dimensions")
        elements = 1
        for _ in range(n_dims):
            elements *= source.u64()
        kind, offset = source.u32(), source.u64()
        block_elements, block_bytes = _BLOCKS.get(kind, (1, 0))
        n_params += elements
        end = max(end, offset + elements // block_elements * block_bytes)
    return n_params, end


class _Source:
    """The front of a file, read as far as it is needed."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self.position = 0
        self._file = file
        self._size = size_bytes
        self._data = bytearray()

    def take(self, count: int) -> bytes:
        start = self._advance(count)
        return bytes(self._data[start : self.position])

    def skip(self, count: int) -> None:
        self._advance(count)

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def unpack(self, layout: str) -> tuple[int | float, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def text(self, limit_bytes: int) -> str:
        return self.take(self._length(limit_bytes)).decode("utf-8", "replace")

    def skip_text(self, limit_bytes: int) -> None:
        self.skip(self._length(limit_bytes))

    def skip_strings(self, count: int) -> None:
        # The hot loop: a quarter of a million rounds for a large vocabulary.
        if count * 8 > self._size:
            raise ValueError(
                f"it is cut off or damaged: its {self._size} bytes cannot hold the {count} texts it claims"
            )
        length_at = struct.Struct("<Q").unpack_from
        position, available = self.position, len(self._data)
        for _ in range(count):
            if position + 8 > available:
                available = self._fill(position + 8)
            position += 8 + length_at(self._data, position)[0]
        self._fill(position)
        self.position = position

    def _length(self, limit_bytes: int) -> int:
        length = self.u64()
        if length > limit_bytes:
            raise ValueError(f"it is damaged: it claims a name of {length} bytes")
        return length

    def _advance(self, count: int) -> int:
        start = self.position
        if start + count > len(self._data):
            self._fill(start + count)
        self.position = start + count
        return start

    def _fill(self, needed: int) -> int:
        """Read on until `needed` bytes are there; how many there are."""
        if needed > HEAD_BYTES_MAX and needed <= self._size:
            raise ValueError(f"its head has over {HEAD_BYTES_MAX} bytes")
        while len(self._data) < needed:
            chunk = self._file.read(_CHUNK) if needed <= self._size else b""
            if not chunk:
                raise ValueError(f"it is truncated: its head does not end within its {self._size} bytes")
            self._data += chunk
        return len(self._data)
