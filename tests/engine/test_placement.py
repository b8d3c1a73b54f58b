"""Where a model is put, over machines of several kinds."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import pytest
from llama_cpp import llama_cpp as lib

from llamad.engine.placement import DEVICES_MAX, Placed, is_fixed, place, usual
from llamad.engine.vocabulary import EngineSettings

MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    name: str
    kind: str = "gpu"
    backend: str = "CUDA"
    id: str = ""
    total_mib: int = 100


class Machine:
    """Handles are indexes from 1. `asked`: whose memory was asked for."""

    def __init__(self, *gpus: Gpu) -> None:
        self._gpus = dict(enumerate(gpus, 1))
        self.asked: list[str] = []

    def gpus(self) -> list[int]:
        return [*self._gpus]

    def device_name(self, device: int) -> str:
        return self._gpus[device].name

    def device_kind(self, device: int) -> str:
        return self._gpus[device].kind

    def device_backend(self, device: int) -> str:
        return self._gpus[device].backend

    def device_id(self, device: int) -> str:
        return self._gpus[device].id

    def device_memory(self, device: int) -> tuple[int, int]:
        self.asked.append(self.device_name(device))
        return 0, self._gpus[device].total_mib * MIB


TWO = Gpu("CUDA0", total_mib=300), Gpu("CUDA1", total_mib=100)


def placed(*gpus: Gpu, **settings: Any) -> Placed:
    return place(EngineSettings("/m.gguf", **settings), Machine(*gpus))


@pytest.mark.parametrize(
    ("gpus", "names"),
    [
        ((), []),
        (TWO, ["CUDA0", "CUDA1"]),
        ((*TWO, Gpu("RPC0", backend="RPC")), ["RPC0", "CUDA0", "CUDA1"]),
        ((Gpu("CUDA0", id="pci:1"), Gpu("Vulkan0", backend="Vulkan", id="pci:1")), ["CUDA0"]),
        ((Gpu("iGPU", "igpu"), Gpu("CUDA0")), ["CUDA0"]),
        ((Gpu("A", "igpu", "Vulkan"), Gpu("B", "igpu", "SYCL"), Gpu("C", "igpu", "Vulkan")), ["A", "C"]),
    ],
    ids=["none", "two", "a server first", "one card seen twice", "integrated beside another", "integrated"],
)
def test_what_is_used_where_nobody_names_a_device(gpus: tuple[Gpu, ...], names: list[str]) -> None:
    machine = Machine(*gpus)
    assert [machine.device_name(handle) for handle in usual(machine)] == names


@pytest.mark.parametrize(
    ("settings", "names", "split"),
    [
        ({}, ("CUDA0", "CUDA1"), (300.0, 100.0)),
        ({"devices": ("CUDA1",)}, ("CUDA1",), ()),
        ({"devices": ("CUDA1", "CUDA0")}, ("CUDA1", "CUDA0"), (100.0, 300.0)),
        ({"devices": ("none",)}, (), ()),
        ({"split_mode": "none"}, ("CUDA0",), ()),
        ({"split_mode": "none", "main_gpu": 1}, ("CUDA1",), ()),
        ({"split_mode": "none", "devices": ("none",)}, (), ()),
        ({"main_gpu": 1}, ("CUDA0", "CUDA1"), (300.0, 100.0)),
        ({"tensor_split": (1.0, 3.0)}, ("CUDA0", "CUDA1"), (1.0, 3.0)),
        ({"tensor_split": (1.0,)}, ("CUDA0", "CUDA1"), (1.0, 0.0)),
    ],
    ids=str,
)
def test_where_a_model_is_put(
    settings: dict[str, Any], names: tuple[str, ...], split: tuple[float, ...]
) -> None:
    found = placed(*TWO, **settings)
    assert (found.names, found.split) == (names, split)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"devices": ("CUDA7",)}, "there is no device 'CUDA7', only CUDA0, CUDA1"),
        ({"devices": ("CUDA0", "none")}, "there is no device 'none', only"),
        ({"devices": ("CUDA0", "CUDA0")}, "named twice"),
        ({"split_mode": "none", "main_gpu": 2}, "there is no device number 2"),
        ({"tensor_split": (1.0, 1.0, 1.0)}, "3 shares for 2 devices (CUDA0, CUDA1)"),
    ],
    ids=str,
)
def test_what_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        placed(*TWO, **settings)
    assert words in str(caught.value)


def test_a_machine_without_a_gpu_has_no_device_of_any_name() -> None:
    assert placed().names == ()
    with pytest.raises(ValueError, match="there is no device 'CUDA0', nor any other"):
        placed(devices=("CUDA0",))


def test_more_devices_than_llama_cpp_can_use() -> None:
    assert lib.llama_max_devices() == DEVICES_MAX
    many = [Gpu(f"CUDA{index}") for index in range(DEVICES_MAX + 1)]
    assert len(placed(*many[:-1]).split) == DEVICES_MAX
    with pytest.raises(ValueError, match="17 devices are more than the 16"):
        placed(*many)


def test_devices_that_are_not_used_are_not_asked_for_their_memory() -> None:
    machine = Machine(*TWO)
    place(EngineSettings("/m.gguf", devices=("CUDA1",)), machine)
    assert machine.asked == []


@pytest.mark.parametrize(
    ("settings", "fixed"),
    [
        ({}, False),
        ({"main_gpu": 1}, False),
        ({"split_mode": "none"}, True),
        ({"devices": ("CUDA0",)}, True),
        ({"tensor_split": (1.0, 0.0)}, True),
    ],
    ids=str,
)
def test_who_leaves_a_choice(settings: dict[str, Any], fixed: bool) -> None:
    assert is_fixed(EngineSettings("/m.gguf", **settings)) is fixed


def test_what_llama_cpp_is_told() -> None:
    params = lib.llama_model_default_params()
    Placed((7, 9), ("A", "B"), (2.0, 1.0)).apply(params)
    handles = [ctypes.c_void_p.from_address(params.devices + 8 * index).value for index in range(3)]
    assert handles == [7, 9, None]
    assert params.tensor_split[:DEVICES_MAX] == [2.0, 1.0, *[0.0] * (DEVICES_MAX - 2)]
    Placed((), ()).apply(params)
    assert ctypes.c_void_p.from_address(params.devices).value is None, "none at all, not the usual ones"
