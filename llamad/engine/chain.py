"""llama.cpp's samplers, in chains.

What needs a look at the whole vocabulary when it is made, DRY's sequence breakers, is made once for the same arguments
and cloned: 25 ms for 50,000 tokens, 170 ms for 260,000, against 0.1 ms for the clone.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as lib

from llamad.engine.narrow import Ids, Row
from llamad.engine.stages import Stage

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_PROTOTYPES_MAX = 8
# Candidates that a PyDLL call, which holds the GIL, may work on: some 10 us.
_SHORT_MAX = 1024
_MIROSTAT_M = 100


class Chains:
    """Makes chains for one vocabulary. `chain` may be called from any thread; what it gives must be used by one thread,
    because all share one buffer of candidates."""

    def __init__(self, vocab: Any, n_vocab: int) -> None:
        self._vocab = vocab
        self._n_vocab = n_vocab
        self._calls = _Calls()
        self._candidates = _Candidates(n_vocab, self._calls)
        self._lock = threading.Lock()
        self._prototypes: OrderedDict[Stage, Any] = OrderedDict()

    def chain(self, stages: Sequence[Stage]) -> Chain:
        """A new chain with its own random numbers and memory; freed with the object."""
        params = lib.llama_sampler_chain_default_params()
        params.no_perf = True
        handle = lib.llama_sampler_chain_init(params)
        chain = Chain(handle, self._candidates, self._calls)
        for stage in stages:
            lib.llama_sampler_chain_add(handle, self._sampler(stage))
        return chain

    def _sampler(self, stage: Stage) -> Any:
        args = stage.args
        match stage.name:
            case "dry":
                return self._dry(stage)
            case "infill":
                return lib.llama_sampler_init_infill(self._vocab)
            case "penalties":
                return lib.llama_sampler_init_penalties(self._n_vocab, *args)
            case "mirostat":
                tau, eta, seed = args
                return lib.llama_sampler_init_mirostat(self._n_vocab, seed, tau, eta, _MIROSTAT_M)
            case "mirostat_v2":
                tau, eta, seed = args
                return lib.llama_sampler_init_mirostat_v2(seed, tau, eta)
        return _plain(stage.name)(*args)

    def _dry(self, stage: Stage) -> Any:
        with self._lock:
            if stage not in self._prototypes:
                multiplier, base, allowed_length, last_n, breakers = stage.args
                texts = (ctypes.c_char_p * len(breakers))(*(text.encode() for text in breakers))
                made = lib.llama_sampler_init_dry(
                    self._vocab, multiplier, base, allowed_length, last_n, texts, len(breakers)
                )
                self._prototypes[stage] = _Owned(made)
                if len(self._prototypes) > _PROTOTYPES_MAX:
                    self._prototypes.popitem(last=False)
            self._prototypes.move_to_end(stage)
            return lib.llama_sampler_clone(self._prototypes[stage].handle)


def _plain(name: str) -> Callable[..., Any]:
    """The function that makes a sampler from the stage's arguments as they are."""
    makers: dict[str, Callable[..., Any]] = {
        "top_n_sigma": lib.llama_sampler_init_top_n_sigma,
        "top_k": lib.llama_sampler_init_top_k,
        "typ_p": lib.llama_sampler_init_typical,
        "top_p": lib.llama_sampler_init_top_p,
        "min_p": lib.llama_sampler_init_min_p,
        "xtc": lib.llama_sampler_init_xtc,
        "temperature": lib.llama_sampler_init_temp_ext,
        "draw": lib.llama_sampler_init_dist,
        "adaptive_p": lib.llama_sampler_init_adaptive_p,
    }
    if name not in makers:
        raise ValueError(f"cannot make the sampler {name!r}: it is unknown")
    return makers[name]


class _Owned:
    """A C sampler that is freed with this object."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        weakref.finalize(self, lib.llama_sampler_free, handle)


class _Calls:
    """Functions of microseconds, called with the GIL held."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(lib._lib._name)
        self.apply = library.llama_sampler_apply
        self.apply.restype, self.apply.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p)
        self.accept = library.llama_sampler_accept
        self.accept.restype, self.accept.argtypes = None, (ctypes.c_void_p, ctypes.c_int32)


class _Candidates:
    """A llama_token_data_array over a numpy buffer for the whole vocabulary."""

    def __init__(self, n_vocab: int, calls: _Calls) -> None:
        self._buffer = np.zeros(n_vocab, _CANDIDATE)
        self._all = np.arange(n_vocab, dtype=np.int32)
        self._array: Any = lib.llama_token_data_array()
        self._address = self._buffer.ctypes.data
        # Made once: each of these costs as much as the call itself.
        self._first = ctypes.cast(self._address, lib.llama_token_data_p)
        self._reference = ctypes.byref(self._array)
        self._ids, self._logits = self._buffer["id"], self._buffer["logit"]
        self._calls = calls

    def apply(self, sampler: Any, logits: Row, ids: Ids | None) -> None:
        """Have a sampler work on these candidates; `logits` are theirs, in the order of `ids` (None: all)."""
        size = logits.size
        self._ids[:size] = self._all if ids is None else ids
        self._logits[:size] = logits
        # A sampler may leave its own pointer and order behind.
        array = self._array
        array.data = self._first
        array.size = size
        array.selected = -1
        array.sorted = False
        # Over a whole vocabulary this takes a millisecond: others may run meanwhile.
        apply = self._calls.apply if size <= _SHORT_MAX else lib.llama_sampler_apply
        apply(sampler, self._reference)

    @property
    def selected(self) -> int:
        """The token that was drawn."""
        return int(self._array.data[self._array.selected].id)

    @property
    def logits(self) -> Row:
        """What a sampler that keeps number and order of the candidates has made of their logits."""
        kept: Row = self._logits[: self._array.size]
        return kept

    def left(self) -> npt.NDArray[Any]:
        """A copy of the candidates that are left, with the fields `id` and `p`."""
        # XTC moves the pointer instead of the candidates.
        start = (ctypes.addressof(self._array.data.contents) - self._address) // _CANDIDATE.itemsize
        return self._buffer[start : start + self._array.size].copy()


class Chain:
    """C samplers one after another. See `sampling.Chain`."""

    def __init__(self, handle: Any, candidates: _Candidates, calls: _Calls) -> None:
        self._owned = _Owned(handle)
        self._candidates = candidates
        self._calls = calls

    def draw(self, row: Row, ids: Ids | None) -> int:
        self._candidates.apply(self._owned.handle, row if ids is None else row[ids], ids)
        return self._candidates.selected

    def adjust(self, row: Row, ids: Ids) -> None:
        self._candidates.apply(self._owned.handle, row[ids], ids)
        row[ids] = self._candidates.logits

    def accept(self, token: int) -> None:
        self._calls.accept(self._owned.handle, token)

    def chances(self) -> tuple[Ids, npt.NDArray[np.float32]]:
        left = self._candidates.left()
        return left["id"], left["p"]
