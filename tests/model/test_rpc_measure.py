"""Measuring on a device with a memory of its own: against the device's own count, and fitted into what it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamad.wire.child import EXIT_OUT_OF_MEMORY
from tests.model.generated import generated
from tests.model.rpc_device import MIB, NAME, RpcDevice
from tests.model.test_measure import complete, measured
from tests.process.child_kit import Child

pytestmark = pytest.mark.model

TOLERANCE = 0.03
ALL_LAYERS = 99
SMOLLM2_LAYERS = 31
"""30, and the output layer."""


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("smollm2", {"n-gpu-layers": ALL_LAYERS, "ctx-size": 1024, "parallel": 1}),
        ("smollm2", {"n-gpu-layers": 10, "ctx-size": 4096, "parallel": 4, "kv-unified": False}),
        (
            "gemma",
            {"n-gpu-layers": ALL_LAYERS, "ctx-size": 1024, "cache-type-k": "q8_0", "cache-type-v": "q8_0"},
        ),
    ],
)
def test_what_is_measured_is_what_the_device_gives(
    model: str, options: dict[str, Any], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = request.getfixturevalue(model)
    with RpcDevice(600 * MIB) as device:
        device.show_to_children(monkeypatch)
        found = measured(path, options)
        told = {each["name"]: each for each in found["devices"]}[NAME]
        assert (told["total_bytes"], told["free_bytes"]) == (device.total_bytes, device.total_bytes)
        assert device.peak_bytes == 0, "measuring takes nothing"
        assert "placements" not in found, "one device leaves no choice"
        predicted = found["maximum"]["bytes"][NAME]["total"]
        with Child("instance", body(path, options)) as child:
            address = child.wait_state("ready")["address"]
            assert device.held_bytes == pytest.approx(predicted, rel=TOLERANCE)
            complete(address, {"prompt": "a " * 20, "max_tokens": 2})
            assert device.held_bytes == pytest.approx(predicted, rel=TOLERANCE)
            child.ask_exit()
            assert child.exit_status(10) == 0
        device.wait_held(lambda held: held == 0)


def test_a_draft_model_and_adapters_are_measured_where_they_will_be(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SmolLM2 drafts for itself. What an adapter adds to the computations is an upper bound, and much for a tiny model."""
    draft = {"spec-draft-model": str(smollm2), "ctx-size": 1024, "parallel": 1, "n-gpu-layers": ALL_LAYERS}
    adapter = {"ctx-size": 1024, "n-gpu-layers": ALL_LAYERS, "lora": [str(generated("lora-a"))]}
    with RpcDevice(600 * MIB) as device:
        device.show_to_children(monkeypatch)
        for path, options, purpose in (
            (smollm2, draft, "draft"),
            (generated("tiny"), adapter, "adapters"),
        ):
            predicted = measured(path, options)["maximum"]["bytes"][NAME]
            assert predicted[purpose] > 0
            with Child("instance", body(path, options)) as child:
                told = child.wait_state("ready")["bytes_detail"][NAME]
                assert told[purpose] == pytest.approx(predicted[purpose], rel=TOLERANCE)
                assert 0.9 * predicted["total"] < device.held_bytes < (1 + TOLERANCE) * predicted["total"]


def test_what_others_hold_is_told_as_not_free(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RpcDevice(300 * MIB) as device:
        device.show_to_children(monkeypatch)
        device.occupy(100 * MIB)
        found = measured(smollm2, {"ctx-size": 512})
        told = {each["name"]: each for each in found["devices"]}[NAME]
        assert (told["total_bytes"], told["free_bytes"]) == (300 * MIB, 200 * MIB)


@pytest.mark.parametrize(
    ("room_mib", "n_ctx", "n_gpu_layers"),
    [
        (300, (8192, 8192), (SMOLLM2_LAYERS, SMOLLM2_LAYERS)),
        (143, (768, 7936), (SMOLLM2_LAYERS, SMOLLM2_LAYERS)),
        (57, (512, 512), (1, SMOLLM2_LAYERS - 1)),
    ],
)
def test_a_choice_fits_into_a_device_of_this_size(
    smollm2: Path,
    room_mib: int,
    n_ctx: tuple[int, int],
    n_gpu_layers: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First less context, then, with the smallest one, fewer layers; and the device has room for the one chosen."""
    with RpcDevice(room_mib * MIB) as device:
        device.show_to_children(monkeypatch)
        options = {"fit-ctx": 512, "parallel": 1}
        chosen = measured(smollm2, options, reserved={NAME: device.total_bytes})["chosen"]
        assert n_ctx[0] <= chosen["n_ctx"] <= n_ctx[1]
        assert n_gpu_layers[0] <= chosen["n_gpu_layers"] <= n_gpu_layers[1]
        options = {"ctx-size": chosen["n_ctx"], "n-gpu-layers": chosen["n_gpu_layers"], "parallel": 1}
        with Child("instance", body(smollm2, options)) as child:
            child.wait_state("ready")
            assert device.held_bytes == pytest.approx(chosen["bytes"][NAME]["total"], rel=TOLERANCE)
        assert device.refused_bytes == []


def test_one_step_more_than_was_chosen_is_too_much(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RpcDevice(143 * MIB) as device:
        device.show_to_children(monkeypatch)
        options = {"fit-ctx": 512, "parallel": 1}
        n_ctx = measured(smollm2, options, reserved={NAME: device.total_bytes})["chosen"]["n_ctx"]
        more = {"ctx-size": n_ctx + 256, "n-gpu-layers": ALL_LAYERS, "parallel": 1}
        with Child("instance", body(smollm2, more)) as child:
            failed = child.wait_state("failed")
            assert child.exit_status(10) == EXIT_OUT_OF_MEMORY
        assert failed["kind"] == "out-of-memory"
        assert f"failed to allocate {NAME}" in failed["message"]
        assert len(device.refused_bytes) == 1


def body(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "path": str(path), "token": "secret", "options": options}
