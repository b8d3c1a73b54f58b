"""ggml's functions that the llama-cpp-python package has no names for: devices, buffer types, GGUF offsets.

The libraries are those that libllama has brought along: they are asked for by soname and never loaded here, because
the package carries the same library under several file names, and a second copy would have a registry of its own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_BASE, _REGISTRY = "libggml-base.so.0", "libggml.so.0"
_KINDS = {0: "host", 1: "gpu", 2: "igpu", 3: "host", 4: "gpu"}
_pointer, _size, _text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
_abort_callback = ctypes.CFUNCTYPE(None, _text)


class _GgufParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("context", _pointer))


class _DeviceProps(ctypes.Structure):
    """`struct ggml_backend_dev_props`, with room for capabilities that are new."""

    _fields_ = (
        ("name", _text), ("description", _text), ("memory_free", _size), ("memory_total", _size),
        ("type", ctypes.c_int), ("device_id", _text), ("capabilities", ctypes.c_char * 64),
    )  # fmt: skip


class Ggml:
    """The functions, declared. Raises OSError where libllama brought no ggml libraries along."""

    def __init__(self) -> None:
        base = ctypes.CDLL(_BASE, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        registry = ctypes.CDLL(_REGISTRY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        self._device_count = _declare(registry, "ggml_backend_dev_count", _size)
        self._device_get = _declare(registry, "ggml_backend_dev_get", _pointer, _size)
        self._device_name = _declare(base, "ggml_backend_dev_name", _text, _pointer)
        self._device_description = _declare(base, "ggml_backend_dev_description", _text, _pointer)
        self._device_type = _declare(base, "ggml_backend_dev_type", ctypes.c_int, _pointer)
        self._device_memory = _declare(base, "ggml_backend_dev_memory", None, _pointer, _pointer, _pointer)
        self._device_props = _declare(base, "ggml_backend_dev_get_props", None, _pointer, _pointer)
        self._device_registry = _declare(base, "ggml_backend_dev_backend_reg", _pointer, _pointer)
        self._registry_name = _declare(base, "ggml_backend_reg_name", _text, _pointer)
        self._type_name = _declare(base, "ggml_backend_buft_name", _text, _pointer)
        self._type_is_host = _declare(base, "ggml_backend_buft_is_host", ctypes.c_bool, _pointer)
        self._type_device = _declare(base, "ggml_backend_buft_get_device", _pointer, _pointer)
        self._buffer_type = _declare(base, "ggml_backend_buffer_get_type", _pointer, _pointer)
        self.tensor_bytes = _declare(base, "ggml_nbytes", _size, _pointer)
        self._gguf_open = _declare(base, "gguf_init_from_file", _pointer, _text, _GgufParams)
        self._gguf_free = _declare(base, "gguf_free", None, _pointer)
        self._gguf_key = _declare(base, "gguf_find_key", ctypes.c_int64, _pointer, _text)
        self._gguf_u16 = _declare(base, "gguf_get_val_u16", ctypes.c_uint16, _pointer, ctypes.c_int64)
        self._gguf_count = _declare(base, "gguf_get_n_tensors", ctypes.c_int64, _pointer)
        self._gguf_name = _declare(base, "gguf_get_tensor_name", _text, _pointer, ctypes.c_int64)
        self._gguf_offset = _declare(base, "gguf_get_tensor_offset", _size, _pointer, ctypes.c_int64)
        self._gguf_size = _declare(base, "gguf_get_tensor_size", _size, _pointer, ctypes.c_int64)

    def devices(self) -> list[int]:
        """Handles of all devices that llama.cpp knows, the CPU among them."""
        return [self._device_get(index) for index in range(self._device_count())]

    def gpus(self) -> list[int]:
        """Handles of the devices that are not the host's."""
        return [device for device in self.devices() if self.device_kind(device) != "host"]

    def device_backend(self, device: int) -> str:
        """What drives it: `CUDA`, `Vulkan`, `RPC`, ..."""
        return str(self._registry_name(self._device_registry(device)).decode(errors="replace"))

    def device_id(self, device: int) -> str:
        """Of the hardware, the same in every backend that sees it; "" where it is not known."""
        props = _DeviceProps()
        self._device_props(device, ctypes.byref(props))
        return str((props.device_id or b"").decode(errors="replace"))

    def device_name(self, device: int) -> str:
        return str(self._device_name(device).decode(errors="replace"))

    def device_description(self, device: int) -> str:
        return str(self._device_description(device).decode(errors="replace"))

    def device_kind(self, device: int) -> str:
        """`host`, `gpu` or `igpu`: accelerators beside the CPU (BLAS, AMX) work in the host's memory."""
        return _KINDS.get(self._device_type(device), "gpu")

    def device_memory(self, device: int) -> tuple[int, int]:
        """Free and total bytes. Of the CPU both are the machine's whole memory, whatever is in use."""
        free, total = _size(), _size()
        self._device_memory(device, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def type_name(self, buffer_type: int) -> str:
        return str(self._type_name(buffer_type).decode(errors="replace"))

    def type_is_host(self, buffer_type: int) -> bool:
        """Whether the CPU reads such a buffer in place; not so for weights that were repacked."""
        return bool(self._type_is_host(buffer_type))

    def type_place(self, buffer_type: int, host: str) -> str:
        """The name of the device that such buffers are in, `host` for all in the machine's own memory."""
        device = self._type_device(buffer_type)
        if self.type_is_host(buffer_type) or not device or self.device_kind(device) == "host":
            return host
        return self.device_name(device)

    def tensor_type(self, tensor: int) -> int:
        """The buffer type of a tensor that has a buffer (`struct ggml_tensor`: type, padding, buffer)."""
        return int(self._buffer_type(_pointer.from_address(tensor + 8).value))

    def tensor_rows(self, tensor: int) -> int:
        """How many numbers a matrix makes of one input (`ne[1]`)."""
        return int(ctypes.c_int64.from_address(tensor + 24).value)

    @contextmanager
    def gguf(self, path: bytes) -> Iterator[int]:
        """An opened GGUF head. Raises OSError if it cannot be read."""
        head = self._gguf_open(path, _GgufParams(True, None))
        if not head:
            raise OSError(f"no GGUF head in {os.fsdecode(path)}")
        try:
            yield head
        finally:
            self._gguf_free(head)

    def gguf_parts(self, head: int) -> int:
        """In how many files the model is."""
        key = self._gguf_key(head, b"split.count")
        return max(1, self._gguf_u16(head, key)) if key >= 0 else 1

    def gguf_offsets(self, head: int) -> dict[bytes, int]:
        """Where each tensor of this file begins, from the start of the data."""
        return {
            self._gguf_name(head, index): self._gguf_offset(head, index)
            for index in range(self._gguf_count(head))
        }

    def gguf_sizes(self, head: int) -> dict[bytes, int]:
        """Bytes of each tensor of this file."""
        return {
            self._gguf_name(head, index): self._gguf_size(head, index)
            for index in range(self._gguf_count(head))
        }


@contextmanager
def before_abort(tell: Callable[[str], object]) -> Iterator[None]:
    """Have `tell` called with ggml's words, on any thread, before ggml ends the process (a failed assertion).

    Does nothing where ggml's library is not as expected.
    """
    try:
        base = ctypes.CDLL(_BASE, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        hook = _declare(base, "ggml_set_abort_callback", _pointer, _abort_callback)
    except (OSError, AttributeError):
        yield
        return
    callback = _abort_callback(lambda text: tell((text or b"").decode(errors="replace").strip()))
    hook(callback)
    try:
        yield
    finally:
        hook(_abort_callback())


def _declare(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = library[name]
    function.restype, function.argtypes = result, arguments
    return function
