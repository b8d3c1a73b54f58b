"""Placement over two devices of unlike sizes: what is measured, what each really holds, and where a real llamad puts models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Document, Llamad
from tests.model.rpc_device import MIB, RpcDevice, environment_of, preset_of
from tests.model.test_measure import complete, measured
from tests.model.test_rpc_admission import ask, asked, decisions
from tests.process.child_kit import Child

pytestmark = pytest.mark.model

TOLERANCE = 0.03
PIPELINE = 0.05
"""Split, the simulated load counts copies of what goes from device to device that the real one has room for elsewhere:
ubatch-size x embedding x 16 bytes, a twentieth of this small model."""
MARGIN_MIB = 16
SMALL_MIB, LARGE_MIB = 160, 240
"""SmolLM2 with 512 tokens (116 MiB) fits once into each; with 6144 (245 MiB) into neither, but into both together."""
SMALL, LARGE = "RPC0", "RPC1"
ALL_LAYERS = {"n-gpu-layers": 99, "ctx-size": 1024, "parallel": 1}

Pair = tuple[RpcDevice, RpcDevice]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with RpcDevice(SMALL_MIB * MIB) as small, RpcDevice(LARGE_MIB * MIB) as large:
        yield small, large
        for device in (small, large):
            device.wait_held(lambda held: held == 0)
            assert device.refused_bytes == []


@pytest.fixture
def seen_by_children(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Pair:
    for name, value in environment_of(*pair).items():
        monkeypatch.setenv(name, value)
    return pair


@contextmanager
def serving(path: Path, pair: Pair, **models: str) -> Iterator[Llamad]:
    """A llamad that keeps books. `models`: lines of the preset for each, all of them the same file."""
    sections = "".join(f"[{name}]\nmodel = {path}\n{lines}\n" for name, lines in models.items())
    presets = f"version = 1\n[*]\nngl = 99\nnp = 1\nc = 512\n{preset_of(*pair)}\n{sections}"
    with Llamad(presets, "--models-memory-margin", str(MARGIN_MIB)) as daemon:
        yield daemon


def placement(daemon: Llamad, model: str) -> list[str] | None:
    models: list[Document] = daemon.admin("GET", "/models")["data"]
    found: list[str] | None = next(m["llamad"]["placement"] for m in models if m["id"] == model)
    return found


def holds(daemon: Llamad, pair: Pair) -> None:
    """The books say what the devices say."""
    books = {device["name"]: device["held_bytes"] for device in daemon.admin("GET", "/status")["devices"]}
    for name, device in zip((SMALL, LARGE), pair, strict=True):
        assert books[name] == pytest.approx(device.held_bytes, rel=TOLERANCE)
        assert device.peak_bytes <= device.total_bytes - MARGIN_MIB * MIB


def test_every_way_takes_what_was_measured(smollm2: Path, seen_by_children: Pair) -> None:
    ways = measured(smollm2, ALL_LAYERS)["placements"]
    assert [way["devices"] for way in ways] == [[SMALL], [LARGE], [SMALL, LARGE]]
    assert ways[2]["split"] == [SMALL_MIB, LARGE_MIB]
    for way in ways:
        body = {"model": "m", "path": str(smollm2), "token": "secret", "options": ALL_LAYERS}
        with Child("instance", {**body, "devices": way["devices"], "tensor_split": way["split"]}) as child:
            address = child.wait_state("ready")["address"]
            complete(address, {"prompt": "a " * 20, "max_tokens": 2})
            for name, device in zip((SMALL, LARGE), seen_by_children, strict=True):
                predicted = way["maximum"]["bytes"].get(name, {"total": 0})["total"]
                assert (1 - PIPELINE) * predicted <= device.held_bytes <= predicted
            child.ask_exit()
            assert child.exit_status(10) == 0


@pytest.mark.parametrize(
    ("options", "devices"),
    [
        ({"device": LARGE}, {LARGE}),
        ({"split-mode": "none", "main-gpu": 1}, {LARGE}),
        ({"split-mode": "none"}, {SMALL}),
        ({"tensor-split": "0,1"}, {LARGE}),
        ({"tensor-split": "1,3"}, {SMALL, LARGE}),
        ({"device": "none"}, set()),
    ],
    ids=str,
)
def test_what_is_fixed_leaves_nothing_to_choose(
    smollm2: Path, seen_by_children: Pair, options: dict[str, Any], devices: set[str]
) -> None:
    found = measured(smollm2, {**ALL_LAYERS, **options})
    assert "placements" not in found
    held = {name for name, share in found["maximum"]["bytes"].items() if share["weights"] and name != "host"}
    assert held == devices


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "RPC7"}, "there is no device 'RPC7', only RPC0, RPC1"),
        ({"split-mode": "none", "main-gpu": 2}, "there is no device number 2"),
        ({"tensor-split": "1,1,1"}, "tensor-split has 3 shares for 2 devices (RPC0, RPC1)"),
    ],
    ids=str,
)
def test_what_these_devices_cannot_do(
    smollm2: Path, seen_by_children: Pair, options: dict[str, Any], words: str
) -> None:
    body = {"model": "m", "path": str(smollm2), "token": "secret", "options": {**ALL_LAYERS, **options}}
    for role, kind in (("measure", "measure-failed"), ("instance", "load-failed")):
        with Child(role, body) as child:
            failed = child.wait_state("failed")
            assert child.exit_status(10) == 1
        assert failed["kind"] == kind
        assert words in failed["message"]


def test_one_device_each_where_it_fits_best_and_both_for_a_larger_one(smollm2: Path, pair: Pair) -> None:
    with serving(smollm2, pair, a="", b="", large="c = 6144\n") as daemon:
        asked(daemon, "a")
        assert placement(daemon, "a") == [SMALL], "the larger gap is kept"
        asked(daemon, "b")
        assert placement(daemon, "b") == [LARGE]
        holds(daemon, pair)
        assert [daemon.state(model) for model in "ab"] == ["loaded", "loaded"]
        asked(daemon, "large")
        assert sorted(placement(daemon, "large") or ()) == [SMALL, LARGE]
        assert [daemon.state(model) for model in "ab"] == ["unloaded", "unloaded"]
        assert placement(daemon, "a") is None
        holds(daemon, pair)
        asked(daemon, "b")
        assert placement(daemon, "b") == [SMALL], "it may be another one the next time"
        holds(daemon, pair)
        assert [d["kind"] for d in decisions(daemon) if d["kind"] in ("measured-wrong", "retry")] == []


def test_a_fixed_device_is_obeyed_or_refused(smollm2: Path, pair: Pair) -> None:
    with serving(smollm2, pair, fixed=f"device = {LARGE}\n", wrong="device = RPC7\n") as daemon:
        asked(daemon, "fixed")
        assert placement(daemon, "fixed") == [LARGE]
        holds(daemon, pair)
        answer = ask(daemon, "wrong")
        assert answer.status_code >= 500
        assert "there is no device 'RPC7', only RPC0, RPC1" in answer.json()["error"]["message"]
        assert daemon.state("fixed") == "loaded"
