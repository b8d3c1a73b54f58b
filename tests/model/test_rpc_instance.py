"""An instance on a device with a memory of its own: fitted into it, asleep without it, and when there is not enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamad.wire.child import EXIT_OUT_OF_MEMORY, Sleep, Wake, encode
from tests.model.rpc_device import MIB, NAME, RpcDevice
from tests.model.test_instance_serving import STORY, TOKEN, loaded
from tests.process.child_kit import Child

pytestmark = pytest.mark.model

SMOLLM2_LAYERS = 31
"""30, and the output layer."""
FIT: dict[str, Any] = {"fit-ctx": 512, "parallel": 1}


@pytest.mark.parametrize(
    ("room_mib", "reserved", "n_ctx", "n_gpu_layers"),
    [
        (600, 143, (768, 7936), (SMOLLM2_LAYERS, SMOLLM2_LAYERS)),
        (600, 57, (512, 512), (1, SMOLLM2_LAYERS - 1)),
        # Nobody keeps books: what the device has free, but for a GiB.
        (1024 + 143, None, (768, 7936), (SMOLLM2_LAYERS, SMOLLM2_LAYERS)),
    ],
)
def test_what_is_open_is_chosen_to_fit(
    smollm2: Path,
    room_mib: int,
    reserved: int | None,
    n_ctx: tuple[int, int],
    n_gpu_layers: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    promise = {} if reserved is None else {"reserved": {NAME: reserved * MIB}}
    with RpcDevice(room_mib * MIB) as device:
        device.show_to_children(monkeypatch)
        with loaded(smollm2, FIT, **promise) as instance:
            ready = instance.ready
            assert n_ctx[0] <= ready["n_ctx"] <= n_ctx[1]
            assert n_gpu_layers[0] <= ready["n_gpu_layers"] <= n_gpu_layers[1]
            assert device.held_bytes <= (reserved or 143) * MIB
            assert ready["bytes"][NAME] == pytest.approx(device.held_bytes, rel=0.03)


def test_asleep_it_holds_nothing_on_the_device(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RpcDevice(600 * MIB) as device:
        device.show_to_children(monkeypatch)
        with loaded(smollm2, FIT | {"ctx-size": 1024, "temperature": 0}) as instance:
            body = {"prompt": STORY, "n_predict": 4}
            answer, held = instance.post("/completion", body)["content"], device.held_bytes
            instance.child.send(encode(Sleep()))
            assert instance.child.wait_state("sleeping", 10)["bytes"].get(NAME, 0) == 0
            device.wait_held(lambda held: held == 0)
            instance.child.send(encode(Wake()))
            assert instance.child.wait_state("ready", 20)["bytes"][NAME] == instance.ready["bytes"][NAME]
            assert device.held_bytes == held
            assert instance.post("/completion", body)["content"] == answer


@pytest.mark.parametrize("hidden_mib", [560, 470])
def test_a_device_that_has_less_than_it_says(
    smollm2: Path, hidden_mib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no room for the weights, or none for the context beside them."""
    with RpcDevice(600 * MIB) as device:
        device.hide(hidden_mib * MIB)
        device.show_to_children(monkeypatch)
        options = {"ctx-size": 8192, "n-gpu-layers": 99, "parallel": 1}
        body = {"model": "m", "path": str(smollm2), "options": options, "token": TOKEN, "transport": "tcp"}
        with Child("instance", body) as child:
            failure = child.wait_state("failed")
            assert failure["kind"] == "out-of-memory"
            assert child.exit_status(10) == EXIT_OUT_OF_MEMORY
        assert device.refused_bytes
        device.wait_held(lambda held: held == 0)


def test_a_device_that_is_full_when_it_is_to_wake(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RpcDevice(600 * MIB) as device:
        device.show_to_children(monkeypatch)
        with loaded(smollm2, {"ctx-size": 1024, "parallel": 1, "n-gpu-layers": 99}) as instance:
            instance.child.send(encode(Sleep()))
            instance.child.wait_state("sleeping", 10)
            device.wait_held(lambda held: held == 0)
            device.occupy(580 * MIB)
            instance.child.send(encode(Wake()))
            assert instance.child.wait_state("failed", 20)["kind"] == "out-of-memory"
            assert instance.child.exit_status(10) == EXIT_OUT_OF_MEMORY
