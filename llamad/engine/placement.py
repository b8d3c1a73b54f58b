"""On which devices a model is, and how much of it on each: what settings mean, given the devices there are.

* Nobody has named devices: those that llama.cpp would take, in its order (servers, then GPUs, each once though several
  backends may see it, and integrated ones only where there is nothing else).
* Over several devices layers are split by the devices' total memory. llama.cpp would go by what is free at that moment,
  and then nobody could say beforehand what a load will take of each.
* A device that is not used is left alone: to ask for a GPU's memory makes a context on it, and costs some of that.

llama.cpp is always told, by handles and shares, so that a simulated load and a real one are placed alike.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from llamad.engine.vocabulary import EngineSettings

NO_DEVICE = "none"
"""The one name in a list of devices that stands for no GPU at all."""
SPLIT_MODES = ("none", "layer")
DEVICES_MAX = 16
"""llama.cpp's own limit, `llama_max_devices`: it reads so many shares."""
_MIB = 1024 * 1024


class Hardware(Protocol):
    """The part of `ggml.Ggml` that is needed here. Devices are handles."""

    def gpus(self) -> list[int]:
        """All but the host's."""
        ...

    def device_name(self, device: int) -> str: ...

    def device_kind(self, device: int) -> str: ...

    def device_backend(self, device: int) -> str: ...

    def device_id(self, device: int) -> str: ...

    def device_memory(self, device: int) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Placed:
    """The devices of one model, in order. `split`: shares of its layers, () where there is nothing to share."""

    handles: tuple[int, ...]
    names: tuple[str, ...]
    split: tuple[float, ...] = ()

    def apply(self, params: Any) -> None:
        """Into `llama_model_params`, which keeps what it points to alive."""
        handles = (ctypes.c_void_p * (len(self.handles) + 1))(*self.handles, None)
        params.devices = ctypes.cast(handles, ctypes.c_void_p)
        if self.split:
            params.tensor_split = (ctypes.c_float * DEVICES_MAX)(*self.split)


def is_fixed(settings: EngineSettings) -> bool:
    """Whether somebody has said where the model has to be."""
    return bool(settings.devices or settings.tensor_split) or settings.split_mode == "none"


def place(settings: EngineSettings, hardware: Hardware) -> Placed:
    """Raises ValueError, in words that complete "cannot load MODEL:", for what these devices cannot do."""
    handles = _named(settings.devices, hardware) if settings.devices else usual(hardware)
    if settings.split_mode == "none" and handles:
        handles = [_main(settings.main_gpu, handles, hardware)]
    if len(handles) > DEVICES_MAX:
        raise ValueError(f"{len(handles)} devices are more than the {DEVICES_MAX} that llama.cpp can use")
    names = tuple(map(hardware.device_name, handles))
    return Placed(tuple(handles), names, _split(settings.tensor_split, handles, names, hardware))


def usual(hardware: Hardware) -> list[int]:
    """What llama.cpp takes where nobody names a device."""
    gpus = hardware.gpus()
    servers = [gpu for gpu in gpus if hardware.device_backend(gpu) == "RPC"]
    integrated = [gpu for gpu in gpus if hardware.device_kind(gpu) == "igpu"]
    cards: dict[str, int] = {}
    for gpu in gpus:
        if gpu not in servers and gpu not in integrated:
            cards.setdefault(hardware.device_id(gpu) or f"handle {gpu}", gpu)
    first = hardware.device_backend(integrated[0]) if integrated else ""
    alike = [gpu for gpu in integrated if hardware.device_backend(gpu) == first]
    return [*servers, *cards.values()] or alike


def _named(names: Sequence[str], hardware: Hardware) -> list[int]:
    if tuple(names) == (NO_DEVICE,):
        return []
    known = {hardware.device_name(gpu): gpu for gpu in hardware.gpus()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no device {unknown[0]!r}, {_only(known)}")
    if len(set(names)) < len(names):
        raise ValueError(f"a device is named twice: {','.join(names)}")
    return [known[name] for name in names]


def _main(index: int, handles: Sequence[int], hardware: Hardware) -> int:
    if not 0 <= index < len(handles):
        there = _only(map(hardware.device_name, handles))
        raise ValueError(f"there is no device number {index} (main-gpu, counted from 0), {there}")
    return handles[index]


def _split(
    asked: Sequence[float], handles: Sequence[int], names: Sequence[str], hardware: Hardware
) -> tuple[float, ...]:
    if len(asked) > max(1, len(handles)):
        there = ", ".join(names) or "none"
        raise ValueError(f"tensor-split has {len(asked)} shares for {len(handles)} devices ({there})")
    if len(handles) < 2:
        return ()
    if asked:
        return (*asked, *[0.0] * (len(handles) - len(asked)))
    return tuple(float(hardware.device_memory(handle)[1] // _MIB) for handle in handles)


def _only(names: Any) -> str:
    there = ", ".join(names)
    return f"only {there}" if there else "nor any other"
