"""What llama.cpp's memory of a context has of each sequence: cut, shared, moved, taken out and put back.

Beside `llama`, `context` and their like one of the files that touch llama.cpp. See `backend.Backend` for the calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from llamad.engine.host_memory import Bytes
from llamad.engine.vocabulary import EngineSettings


class Sequences:
    """The memory's part of a backend. Belongs to the engine's thread."""

    def __init__(self, model: Any, context: Any, settings: EngineSettings) -> None:
        self._model, self._context = model, context
        self._memory = lib.llama_get_memory(context)
        self.n_swa = 0 if settings.swa_full else int(lib.llama_model_n_swa(model))
        self.recurrent = bool(lib.llama_model_is_recurrent(model) or lib.llama_model_is_hybrid(model))
        self.can_shift = bool(self._memory and lib.llama_memory_can_shift(self._memory))
        # A part of a sequence can be shared where its cells are in one place and all of them are kept.
        self._copies_parts = settings.kv_unified and not self.recurrent and not self.n_swa

    def pos_min(self, sequence: int) -> int:
        return int(lib.llama_memory_seq_pos_min(self._memory, sequence))

    def trim(self, sequence: int, n_past: int) -> bool:
        return bool(lib.llama_memory_seq_rm(self._memory, sequence, n_past, -1))

    def can_copy(self, source: int, count: int) -> bool:
        """A part of a sequence only where it shares its cells; llama.cpp asserts that elsewhere it is whole."""
        return self._copies_parts or count == lib.llama_memory_seq_pos_max(self._memory, source) + 1

    def copy(self, source: int, target: int, count: int) -> None:
        """Shares the cells where they are in one place; else llama.cpp copies them with the next decode."""
        whole = count == lib.llama_memory_seq_pos_max(self._memory, source) + 1
        lib.llama_memory_seq_cp(self._memory, source, target, -1 if whole else 0, -1 if whole else count)

    def shift(self, sequence: int, begin: int, count: int) -> None:
        lib.llama_memory_seq_rm(self._memory, sequence, begin, begin + count)
        lib.llama_memory_seq_add(self._memory, sequence, begin + count, -1, -count)

    def gather(self, sequence: int, n_past: int, chunks: Sequence[tuple[int, int]]) -> None:
        for begin, count in chunks:
            if begin > n_past:
                lib.llama_memory_seq_rm(self._memory, sequence, n_past, begin)
                lib.llama_memory_seq_add(self._memory, sequence, begin, begin + count, n_past - begin)
            n_past += count
        lib.llama_memory_seq_rm(self._memory, sequence, n_past, -1)

    def state_bytes(self, sequence: int, partial: bool) -> int:
        return int(lib.llama_state_seq_get_size_ext(self._context, sequence, _flags(partial)))

    def state(self, sequence: int, partial: bool) -> Bytes | None:
        """Waits for the device. A gigabyte takes some tenths of a second."""
        state = np.empty(self.state_bytes(sequence, partial), np.uint8)
        size = lib.llama_state_seq_get_data_ext(
            self._context, _address(state), state.size, sequence, _flags(partial)
        )
        return state if size == state.size else None

    def restore(self, sequence: int, state: Bytes, partial: bool) -> bool:
        size = lib.llama_state_seq_set_data_ext(
            self._context, _address(state), state.size, sequence, _flags(partial)
        )
        if size == state.size:
            return True
        self.clear(sequence)
        return False

    def clear(self, sequence: int) -> None:
        lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)


def _address(state: Bytes) -> Any:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _flags(partial: bool) -> int:
    return int(lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if partial else lib.LLAMA_STATE_SEQ_FLAGS_NONE)
