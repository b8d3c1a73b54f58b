"""NVIDIA GPUs, through NVML, which tells of memory without making a context: the supervisor holds none of it.

Names are ggml's: `CUDA0` is the first GPU that a child sees. Children enumerate by PCI bus, as NVML does, because their
environment says so (`spawn`); `CUDA_VISIBLE_DEVICES` then picks and renumbers. A model may have a `CUDA_VISIBLE_DEVICES`
of its own, so that its `CUDA0` is another device than the daemon's; `names` translates. A GPU that the daemon itself
does not see is named by its UUID.

A GPU that is partitioned (MIG) is left out: what its parts have left is not told by the whole. What a measure child says
of such devices is all that is known of them (`memory`).

NVML may come and go with its driver: whatever fails is tried again later, and never ends the daemon.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

VISIBLE_ENV = "CUDA_VISIBLE_DEVICES"
RETRY_S = 30.0


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU, in bytes. `processes`: (pid, bytes) of those that use it; None: it does not tell them apart."""

    name: str
    total: int
    free: int
    processes: tuple[tuple[int, int], ...] | None


class Gpus:
    """`nvml` is the module `pynvml`, or what stands in for it; None: there is none on this machine."""

    def __init__(self, environ: Mapping[str, str], nvml: Any) -> None:
        self._nvml = nvml
        self._visible = environ.get(VISIBLE_ENV)
        self._handles: dict[str, Any] = {}
        """By UUID, in NVML's order; "MIG n" holds the place of a partitioned one."""
        self._others: set[str] = set()
        self._retry_at = 0.0
        self._complaint = ""

    def read(self, now: float) -> list[GpuReading]:
        """Every GPU that is in use by our children, or could be. Bounded by what NVML takes; milliseconds."""
        self._open(now)
        readings = []
        for uuid, name in self._book_names().items():
            try:
                readings.append(self._read(name, self._handles[uuid]))
            except self._errors as error:
                self._complain(f"cannot read the memory of {name}: {error}")
                self._close(now)
                break
        return readings

    def names(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What a model calls a device, to its name on the books, for a model with these variables of its own."""
        if environment.get(VISIBLE_ENV) is None:
            return {}
        seen = visible(list(self._handles), environment[VISIBLE_ENV])
        self._others.update(uuid for uuid in seen if not uuid.startswith("MIG"))
        books = self._book_names()
        return {f"CUDA{index}": books[uuid] for index, uuid in enumerate(seen) if uuid in books}

    # ---- NVML

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return (self._nvml.NVMLError,) if self._nvml is not None else ()

    def _open(self, now: float) -> None:
        if self._handles or self._nvml is None or now < self._retry_at:
            return
        try:
            self._nvml.nvmlInit()
        except self._errors as error:
            # Most machines without one are meant to be so. Who asked for layers on a GPU is told by the measurer.
            self._complain(f"no NVIDIA GPU is visible: {error}", logging.INFO)
            self._retry_at = now + RETRY_S
            return
        try:
            for index in range(self._nvml.nvmlDeviceGetCount()):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                key = f"MIG {index}" if self._partitioned(handle) else self._uuid(handle)
                self._handles[key] = handle
        except self._errors as error:
            self._complain(f"cannot look at the NVIDIA GPUs: {error}")
            self._close(now)
            return
        log.info("%d NVIDIA GPUs are visible", len(self._handles))
        self._complaint = ""
        if not self._handles:
            self._close(now)

    def _close(self, now: float) -> None:
        self._handles = {}
        self._retry_at = now + RETRY_S
        try:
            self._nvml.nvmlShutdown()
        except self._errors:
            return  # the driver is gone, and with it whatever was open

    def _complain(self, words: str, level: int = logging.WARNING) -> None:
        """Once for each reason."""
        if words != self._complaint:
            self._complaint = words
            log.log(level, "%s", words)

    def _partitioned(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(handle)[0])
        except self._errors:
            return False  # a GPU that knows no partitions

    def _uuid(self, handle: Any) -> str:
        uuid = self._nvml.nvmlDeviceGetUUID(handle)
        return uuid.decode() if isinstance(uuid, bytes) else str(uuid)

    def _read(self, name: str, handle: Any) -> GpuReading:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        return GpuReading(name, int(memory.total), int(memory.free), self._processes(handle))

    def _processes(self, handle: Any) -> tuple[tuple[int, int], ...] | None:
        used: dict[int, int] = {}
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except self._errors:
            return None
        for process in running:
            if process.usedGpuMemory is None:
                return None
            used[process.pid] = used.get(process.pid, 0) + int(process.usedGpuMemory)
        return tuple(used.items())

    def _book_names(self) -> dict[str, str]:
        """UUID to name, of what the daemon's own children see and what a model's own variable has named."""
        seen = visible(list(self._handles), self._visible)
        names = {uuid: f"CUDA{index}" for index, uuid in enumerate(seen)}
        names.update(
            {uuid: uuid for uuid in sorted(self._others) if uuid in self._handles and uuid not in names}
        )
        return {uuid: name for uuid, name in names.items() if not uuid.startswith("MIG")}


def visible(uuids: Sequence[str], value: str | None) -> list[str]:
    """What CUDA_VISIBLE_DEVICES leaves of `uuids`, in its order: indexes, or beginnings of UUIDs.

    As in CUDA, the first entry that names no device ends the list. An entry that names a part of a GPU keeps its place.
    """
    if value is None:
        return list(uuids)
    seen: list[str] = []
    for word in (word.strip() for word in value.split(",")):
        if word.startswith("MIG"):
            seen.append(word)
            continue
        found = _chosen(uuids, word)
        if found is None or found in seen:
            break
        seen.append(found)
    return seen


def _chosen(uuids: Sequence[str], word: str) -> str | None:
    if word.isdecimal():
        return uuids[int(word)] if int(word) < len(uuids) else None
    found = [uuid for uuid in uuids if word and uuid.startswith(word)]
    return found[0] if len(found) == 1 else None


def find_nvml() -> Any:
    """The module `pynvml` where it is installed. It finds out about the driver when it is first used."""
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return None
    return pynvml
