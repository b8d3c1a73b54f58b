"""LoRA adapters in llama.cpp: read them, and put them on a context and off it.

* They are read before the context is made, which leaves room in its graphs for the adapters that are there by then.
* After a change of the set llama.cpp lays out its compute buffers anew, at the next decode call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

from llama_cpp import llama_cpp as lib

from llamad.engine.adapters import in_force
from llamad.engine.complaints import failure
from llamad.engine.vocabulary import AdapterFacts, AdapterFile, Adapters
from llamad.errors import LlamadError

_TEXT_BYTES_MAX = 1024


class Loras:
    """The adapters of one model; freed with it."""

    def __init__(self, model: Any, files: Sequence[AdapterFile], why: Callable[[], str]) -> None:
        """Raises LlamadError (`load-failed`) for a file that cannot be used; `why` gives llama.cpp's reason."""
        self._handles = [_load(model, file.path, why) for file in files]
        self.facts = tuple(
            AdapterFacts(file.path, file.scale, _text(handle, "task_name"), _text(handle, "prompt_prefix"))
            for file, handle in zip(files, self._handles, strict=True)
        )
        self._applied: Adapters = ()

    @property
    def all(self) -> Adapters:
        """Every one of them."""
        return in_force((id, 1.0) for id in range(len(self._handles)))

    def apply(self, context: Any, adapters: Adapters) -> None:
        """Evaluate what comes next with these."""
        if adapters == self._applied:
            return
        count = len(adapters)
        handles = (lib.llama_adapter_lora_p_ctypes * count)(*(self._handles[id] for id, _ in adapters))
        scales = (ctypes.c_float * count)(*(scale for _, scale in adapters))
        lib.llama_set_adapters_lora(context, handles, count, scales)
        self._applied = adapters


def _load(model: Any, path: str, why: Callable[[], str]) -> Any:
    handle = lib.llama_adapter_lora_init(model, os.fsencode(path))
    if not handle:
        raise _unusable(path, why())
    if lib.llama_adapter_get_alora_n_invocation_tokens(handle):
        raise _unusable(
            path, "it is an activated LoRA, which takes effect in mid-prompt, and that is not supported"
        )
    return handle


def _unusable(path: str, reason: str) -> LlamadError:
    return failure(f"cannot use the adapter {path}: {reason}", kind="load-failed")


def _text(handle: Any, name: str) -> str:
    """A text that the adapter's author has left for its users, "" if none."""
    buffer = ctypes.create_string_buffer(_TEXT_BYTES_MAX)
    lib.llama_adapter_meta_val_str(handle, f"adapter.lora.{name}".encode(), buffer, len(buffer))
    return buffer.value.decode(errors="replace")
