"""What llama.cpp says of memory: its devices, what a model would take (without allocating it), what one really took.

Beside `llama` the only file that touches llama.cpp.

* `no_alloc` models simulate their buffers: loading costs the time of the vocabulary, each context some 10 ms more, and
  one model serves contexts of all sizes. The load mode must be NONE: with another one llama.cpp asserts.
* llama.cpp's own account of its buffers is C++ inside (`cxx` reads it), so it may be unreadable one day. A prediction is
  refused then, and what a running process took is told by its RSS.
* With `mmap` the host's weights are the mapped range of the file, and that has gaps: tensors in it that were repacked
  into other buffers, or put on a GPU. A simulated load does not know of them, so the range is worked out from the
  tensors' places in the file.

A failing assertion in llama.cpp ends the process: probe in one that may end.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import os
from collections.abc import Sequence
from typing import Any

from llama_cpp import llama_cpp as lib

from llamad.engine import breakdown, checks, cxx, llama, loading
from llamad.engine.breakdown import HOST, Buffer, Device, Share
from llamad.engine.complaints import Complaints
from llamad.engine.context import context_params, read_shape, set_extra
from llamad.engine.ggml import Ggml
from llamad.engine.vocabulary import EngineSettings
from llamad.errors import LlamadError

log = logging.getLogger(__name__)

_PATH_BYTES_MAX = 4096
_FLOAT_BYTES = 4
_MAPPED = "CPU_Mapped"


def devices() -> list[Device]:
    """The host and every GPU, with the memory that is there and free now. Raises LlamadError (`measure-failed`)."""
    lib.llama_backend_init()
    ggml = _ggml()
    found = [Device(HOST, "the machine's own memory", HOST, *host_memory())]
    for gpu in ggml.gpus():
        free, total = ggml.device_memory(gpu)
        name, about = ggml.device_name(gpu), ggml.device_description(gpu)
        found.append(Device(name, about, ggml.device_kind(gpu), total, free))
    return found


class Prober:
    """Tells what a model would take with other contexts and layer counts than its settings have, or with these.

    Use it as a context manager. Raises LlamadError (`measure-failed`) where llama.cpp cannot load the model or its
    account cannot be read, ConfigError for settings that cannot work. `overhead`: what an earlier one in this process has
    found; by now the process has more than an instance would.
    """

    def __init__(self, settings: EngineSettings, overhead: dict[str, int] | None = None) -> None:
        checks.check_settings(settings, lib.llama_max_parallel_sequences())
        lib.llama_log_set(llama._to_log, None)
        lib.llama_backend_init()
        self._settings = settings
        self._ggml = _ggml()
        self.placed = llama.place(settings)
        self._free_before = self._free_bytes()
        self.overhead = overhead
        """Bytes by device beside the buffers, from the first probe on."""
        draft = loading.of_draft_model(settings)
        self._draft = Prober(draft) if draft is not None else None
        self._load(settings.n_gpu_layers)
        self.n_ctx_train = int(lib.llama_model_n_ctx_train(self._model))
        self.n_layers = int(lib.llama_model_n_layer(self._model)) + 1 if self.placed.handles else 0
        """How many layers can be on GPUs: the repeating ones, and the output layer as one more. 0 without a GPU."""
        self._n_gpu_layers = self._layers(settings.n_gpu_layers)
        self.n_vocab = int(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model)))
        self.generates = read_shape(settings, self._model).generates

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *_: object) -> None:
        lib.llama_model_free(self._model)
        if self._draft is not None:
            self._draft.__exit__()

    def probe(self, n_ctx: int, n_gpu_layers: int) -> dict[str, Share]:
        """What the model would take with `n_ctx` tokens and `n_gpu_layers` layers on GPUs (-1: all)."""
        shares = self._buffers(n_ctx, n_gpu_layers)
        if self._draft is not None:
            draft = self._draft._buffers(n_ctx, self._draft._settings.n_gpu_layers)
            shares = breakdown.joined(shares, breakdown.as_draft(draft))
        if self._settings.adapters:
            shares = breakdown.joined(shares, self._adapters())
        if self.overhead is None:
            self.overhead = self._read_overhead()
        return breakdown.with_overhead(shares, self.overhead)

    def _buffers(self, n_ctx: int, n_gpu_layers: int) -> dict[str, Share]:
        """Of the model alone."""
        if self._layers(n_gpu_layers) != self._n_gpu_layers:
            lib.llama_model_free(self._model)
            self._load(n_gpu_layers)
            self._n_gpu_layers = self._layers(n_gpu_layers)
        settings = dataclasses.replace(self._settings, n_ctx=n_ctx)
        shape = read_shape(settings, self._model)
        with Complaints(llama.log) as complaints:
            context = lib.llama_init_from_model(self._model, context_params(settings, shape))
            if not context:
                raise _failed(f"no context of {n_ctx} tokens: {complaints.reason}")
        try:
            buffers = self._with_mapping(read_buffers(context, self._ggml))
            return breakdown.by_device([*buffers, Buffer(HOST, compute=shape.output_bytes)])
        finally:
            lib.llama_free(context)

    def _adapters(self) -> dict[str, Share]:
        settings = self._settings
        n_ubatch = min(settings.n_batch, settings.n_ubatch)
        paths = [adapter.path for adapter in settings.adapters]
        return {
            device: Share(compute=n_ubatch * row, adapters=weights)
            for device, (weights, row) in _adapters(self._model, paths, self._ggml).items()
        }

    def _layers(self, n_gpu_layers: int) -> int:
        return self.n_layers if n_gpu_layers < 0 else min(n_gpu_layers, self.n_layers)

    def _load(self, n_gpu_layers: int) -> None:
        params = lib.llama_model_default_params()
        params.no_alloc, params.load_mode = True, lib.LLAMA_LOAD_MODE_NONE
        params.n_gpu_layers = n_gpu_layers
        self.placed.apply(params)
        set_extra(params, self._settings, checks.EXTRA_MODEL)
        path = os.fsencode(self._settings.path)
        with Complaints(llama.log) as complaints:
            self._model: Any = lib.llama_model_load_from_file(path, params)
            if not self._model:
                raise _failed(f"no model: {complaints.reason}")
        self._mapped_bytes = self._read_mapped_bytes(path) if self._settings.use_mmap else None

    def _with_mapping(self, buffers: list[Buffer]) -> list[Buffer]:
        """With mmap, what the simulation put into the host's ordinary buffers will be mapped as one range."""
        if self._mapped_bytes is None:
            return buffers
        rest = [dataclasses.replace(buffer, weights=0) if buffer.in_place else buffer for buffer in buffers]
        return [*rest, Buffer(HOST, in_place=True, mapped=True, weights=self._mapped_bytes)]

    def _read_mapped_bytes(self, path: bytes) -> int | None:
        """In each file, from the first byte of a tensor that stays on the host to the last one. None: not known."""
        try:
            tensors = {
                name: self._ggml.tensor_bytes(tensor)
                for name, tensor in cxx.tensors(lib._lib, self._model)
                if self._ggml.type_is_host(self._ggml.tensor_type(tensor))
            }
            return sum(_span(tensors, part, self._ggml) for part in _parts(path, self._ggml))
        except (LlamadError, OSError) as error:
            log.warning("cannot tell how much of the file will be mapped, gaps are not counted: %s", error)
            return None

    def _read_overhead(self) -> dict[str, int]:
        """This process has by now all that one with real buffers would have, but for the buffers."""
        now = self._free_bytes()
        overhead = {name: max(0, free - now[name]) for name, free in self._free_before.items()}
        return {**overhead, HOST: resident_bytes("RssAnon")}

    def _free_bytes(self) -> dict[str, int]:
        return {self._ggml.device_name(gpu): self._ggml.device_memory(gpu)[0] for gpu in self._ggml.gpus()}


def effective_bytes(backend: llama.LlamaBackend) -> dict[str, Share]:
    """What a loaded model takes, by `breakdown`'s yardstick.

    Where llama.cpp's account cannot be read, all that is known is the host's: the whole resident memory as `overhead`.
    """
    try:
        ggml = _ggml()
        buffers = read_buffers(backend._context, ggml)
        draft = read_buffers(backend.draft._context, ggml) if backend.draft is not None else []
        paths = [adapter.path for adapter in backend.facts.adapters]
        adapters = {
            device: Share(adapters=weights)
            for device, (weights, _) in _adapters(backend._model, paths, ggml).items()
        }
    except LlamadError:
        return {HOST: Share(overhead=resident_bytes("VmRSS"))}
    shares = breakdown.by_device([*buffers, Buffer(HOST, compute=backend.output_bytes_to_come)])
    shares = breakdown.joined(shares, breakdown.as_draft(breakdown.by_device(draft)))
    shares = breakdown.joined(shares, adapters)
    anonymous = breakdown.anonymous_bytes([*buffers, *draft]) + shares[HOST].adapters
    return breakdown.with_overhead(shares, {HOST: max(0, resident_bytes("RssAnon") - anonymous)})


def read_buffers(context: Any, ggml: Ggml) -> list[Buffer]:
    """llama.cpp's account of a context and its model, by buffer type. Raises LlamadError (`measure-failed`)."""
    buffers = [
        Buffer(
            device=ggml.type_place(held.type, HOST),
            in_place=ggml.type_is_host(held.type),
            mapped=ggml.type_name(held.type) == _MAPPED,
            weights=held.weights,
            kv=held.kv,
            compute=held.compute,
        )
        for held in cxx.breakdown(lib._lib, context)
    ]
    _check_sums(buffers, lib.llama_model_size(lib.llama_get_model(context)))
    return buffers


def _adapters(model: Any, paths: Sequence[str], ggml: Ggml) -> dict[str, tuple[int, int]]:
    """By device: bytes of the adapters' weights, and of the widest row that one adds to a computation.

    llama.cpp's account leaves them out. An adapter's tensors lie where the one is that they change, `NAME.lora_a` and
    `NAME.lora_b` where `NAME` is. Raises LlamadError (`measure-failed`).
    """
    if not paths:
        return {}
    base = {
        name: (ggml.type_place(ggml.tensor_type(tensor), HOST), ggml.tensor_rows(tensor))
        for name, tensor in cxx.tensors(lib._lib, model)
    }
    found: dict[str, tuple[int, int]] = {}
    for path in paths:
        try:
            with ggml.gguf(os.fsencode(path)) as head:
                sizes = ggml.gguf_sizes(head)
        except OSError as error:
            raise _failed(f"the adapter {path} cannot be read: {error}") from error
        for name, size in sizes.items():
            device, rows = base.get(name.rpartition(b".")[0], (HOST, 0))
            weights, row = found.get(device, (0, 0))
            found[device] = weights + size, max(row, rows * _FLOAT_BYTES)
    return found


def host_memory() -> tuple[int, int]:
    """Bytes of the machine's memory: all, and what programs can have without swapping (proc(5), MemAvailable)."""
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":", 1) for line in file)
    return _kib(lines["MemTotal"]), _kib(lines["MemAvailable"])


def resident_bytes(field: str) -> int:
    """`VmRSS`, or `RssAnon`: its anonymous part, of this process (proc(5), status)."""
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return _kib(lines[field])


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024


def _ggml() -> Ggml:
    try:
        return Ggml()
    except (OSError, AttributeError) as error:
        raise _failed(f"ggml's libraries are not as expected: {error}") from error


def _check_sums(buffers: list[Buffer], weights: int) -> None:
    """The weights must be there about once: gaps of a mapping and copies for several devices may be added."""
    counted = sum(buffer.weights for buffer in buffers)
    if not 0.5 * weights <= counted <= 4 * weights:
        raise _failed(
            f"llama.cpp's account of its memory has {counted} bytes of weights, the model {weights}"
        )


def _span(tensors: dict[bytes, int], path: bytes, ggml: Ggml) -> int:
    """Bytes from the first to the last of these tensors (name: size) in one file; others may lie between."""
    with ggml.gguf(path) as head:
        places = ggml.gguf_offsets(head)
    here = [(places[name], places[name] + size) for name, size in tensors.items() if name in places]
    return max(end for _, end in here) - min(start for start, _ in here) if here else 0


def _parts(path: bytes, ggml: Ggml) -> list[bytes]:
    """All files of a model, by the first one."""
    with ggml.gguf(path) as head:
        count = ggml.gguf_parts(head)
    if count == 1:
        return [path]
    prefix = ctypes.create_string_buffer(_PATH_BYTES_MAX)
    lib.llama_split_prefix(prefix, len(prefix), path, 0, count)
    parts = []
    for index in range(count):
        part = ctypes.create_string_buffer(_PATH_BYTES_MAX)
        lib.llama_split_path(part, len(part), prefix.value, index, count)
        parts.append(part.value)
    return parts


def _failed(reason: str) -> LlamadError:
    return LlamadError(f"cannot measure the model: {reason}", kind="measure-failed")
