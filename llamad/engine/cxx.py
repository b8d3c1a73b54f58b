"""Two functions of llama.cpp that have C++ linkage and answer with C++ containers, called through their mangled names.

`llama_get_memory_breakdown` returns a std::map by value: libffi makes room for it and passes its address as the platform
wants it. Nobody destroys the map afterwards, so its nodes are freed here. `llama_internal_get_tensor_map` returns a
reference to a std::vector. The layouts are libstdc++'s on 64 bits. That is checked as far as it can be: symbols, the
library, and numbers that must agree.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from llamad.errors import LlamadError

_BREAKDOWN = "_Z26llama_get_memory_breakdownPK13llama_context"
_TENSORS = "_Z29llama_internal_get_tensor_mapB5cxx11PK11llama_model"
# A buffer type is a kind of buffer of one device; machines have tens of devices at most.
BUFFER_TYPES_MAX = 256
TENSORS_MAX = 1 << 20


class Held(NamedTuple):
    """What is held in buffers of one type (a `ggml_backend_buffer_type_t`), in bytes."""

    type: int
    weights: int
    kv: int
    compute: int


class Map(ctypes.Structure):
    """std::map: comparator, then the header node (color, root, leftmost, rightmost) and the count."""

    _fields_ = tuple(
        (name, ctypes.c_size_t) for name in ("compare", "color", "root", "first", "last", "count")
    )


class Node(ctypes.Structure):
    """A node of it: the tree's part, the key, and a `llama_memory_breakdown_data`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("color", "parent", "left", "right", "type", "weights", "kv", "compute")
    )


class _Vector(ctypes.Structure):
    """std::vector."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in ("begin", "end", "capacity"))


class _NamedTensor(ctypes.Structure):
    """std::pair<std::string, ggml_tensor *>."""

    _fields_ = (
        ("text", ctypes.c_size_t),
        ("length", ctypes.c_size_t),
        ("inline", ctypes.c_char * 16),
        ("tensor", ctypes.c_size_t),
    )


def breakdown(library: ctypes.CDLL, context: Any) -> list[Held]:
    """What a context and its model hold, by buffer type. Raises LlamadError (`measure-failed`)."""
    function = _function(library, _BREAKDOWN)
    function.restype, function.argtypes = Map, (ctypes.c_void_p,)
    return list(walk(function(context)))


def tensors(library: ctypes.CDLL, model: Any) -> Iterator[tuple[bytes, int]]:
    """Name and address of each tensor of a model. Raises LlamadError (`measure-failed`)."""
    function = _function(library, _TENSORS)
    function.restype, function.argtypes = ctypes.POINTER(_Vector), (ctypes.c_void_p,)
    vector = function(model).contents
    size = ctypes.sizeof(_NamedTensor)
    count, rest = divmod(vector.end - vector.begin, size)
    if rest or not 1 <= count <= TENSORS_MAX:
        raise unreadable(f"its list of tensors has {vector.end - vector.begin} bytes")
    for index in range(count):
        item = _NamedTensor.from_address(vector.begin + index * size)
        yield ctypes.string_at(item.text, item.length), item.tensor


def walk(found: Map) -> Iterator[Held]:
    """The content of a map; its nodes are freed. Raises LlamadError (`measure-failed`) where the count does not agree."""
    if not 1 <= found.count <= BUFFER_TYPES_MAX or not found.root:
        raise unreadable(f"it has {found.count} buffer types")
    free = ctypes.CDLL(None).free
    free.restype, free.argtypes = None, (ctypes.c_void_p,)
    waiting, count = [found.root], 0
    while waiting and count < found.count:
        address = waiting.pop()
        node = Node.from_buffer_copy(Node.from_address(address))
        free(address)
        waiting += filter(None, (node.left, node.right))
        count += 1
        yield Held(node.type, node.weights, node.kv, node.compute)
    if waiting or count != found.count:
        raise unreadable(f"it has {count + len(waiting)} of {found.count} buffer types")


def unreadable(why: str) -> LlamadError:
    """The error for an account that makes no sense."""
    return LlamadError(
        f"cannot measure the model: llama.cpp's account of its memory cannot be read: {why}",
        kind="measure-failed",
    )


def _function(library: ctypes.CDLL, symbol: str) -> Any:
    try:
        ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        return library[symbol]
    except (OSError, AttributeError) as error:
        raise unreadable(str(error)) from error
