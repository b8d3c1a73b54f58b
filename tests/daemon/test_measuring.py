"""Measure children that are shell scripts, with a recorder in the scheduler's place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamad.clock import SystemClock
from llamad.config.settings import ModelSpec
from llamad.core.actions import Kill, Measure, Note
from llamad.core.events import (
    ChildExited,
    ChildFailed,
    ChildMeasured,
    ChildNotSpawned,
    Event,
    MemoryRead,
    Need,
    NeedDoubted,
    Placement,
)
from llamad.daemon import measuring
from llamad.daemon.gpus import Gpus
from llamad.daemon.host_memory import HostMemory
from llamad.daemon.kernel import Kernel
from llamad.daemon.loop import Loop
from llamad.daemon.measuring import Measurer, asks_for_gpu
from llamad.daemon.memory import Memory
from llamad.daemon.monitor import Instance
from llamad.daemon.needs import Needs
from llamad.daemon.spawn import Commands, Spawner
from llamad.daemon.statefile import StateFile
from llamad.observe.ring import LineRing
from tests.daemon.fake_machine import FakeGpu, FakeHost, FakeNvml
from tests.daemon.parts import FailingKernel, children_left, run_until

REPORT = "cmd_child_to_router:state:"


def says(state: str, **payload: Any) -> str:
    return f"echo '{REPORT}{json.dumps({'state': state, 'payload': payload})}'; "


RESULT: dict[str, Any] = {
    "devices": [
        {"name": "host", "kind": "host", "total_bytes": 9},
        {"name": "RPC0", "kind": "gpu", "total_bytes": 77},
    ],
    "minimum": {"bytes": {"host": {"total": 5}, "CUDA0": {"total": 6}}},
    "maximum": {"bytes": {"host": {"total": 7}, "CUDA0": {"total": 8}}},
}
GOOD = says("measuring") + says("measured", **RESULT)
NEED = Need({"host": 5, "CUDA0": 6}, {"host": 7, "CUDA0": 8})


WAYS = [
    {
        "devices": devices,
        "split": split,
        "minimum": {"bytes": {"host": {"total": 5}, **{key: {"total": 60} for key in devices}}},
        "maximum": {"bytes": {"host": {"total": 7}, **{key: {"total": 80} for key in devices}}},
    }
    for devices, split in ((["CUDA0"], []), (["CUDA0", "CUDA1"], [3.0, 1]))
]
SEVERAL_WAYS = says("measured", **RESULT, placements=WAYS)


def seeing(*gpus: tuple[str, int]) -> str:
    """A child that measures, and sees these."""
    devices = [{"name": name, "kind": "gpu", "total_bytes": total} for name, total in gpus]
    return says("measured", **{**RESULT, "devices": devices})


class Bench:
    """A measurer whose child does what the model's SCRIPT says. The machine has two GPUs."""

    def __init__(self, directory: Path, kernel: Kernel | None = None) -> None:
        self.loop = Loop(SystemClock())
        self.events: list[Event] = []
        self.notes: list[Note] = []
        self.specs: dict[str, ModelSpec] = {}
        self.rings: dict[str, LineRing] = {}
        nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
        host = FakeHost(directory / "root")
        self.memory = Memory(
            self.loop, HostMemory(str(host.root)), Gpus({}, nvml), list, lambda _: 0, self.events.append
        )
        self.needs = Needs(StateFile(str(directory), "needs.json"))
        self.measurer = Measurer(
            self.loop,
            Spawner(self.loop, kernel or Kernel(), {"PATH": "/usr/bin:/bin"}),
            Commands(measure=("/bin/sh", "-c", 'read start; echo "$start" >&2; eval "$SCRIPT"')),
            self.specs.get,
            self.memory,
            self.needs,
            lambda name: self.rings.setdefault(name, LineRing()),
            self.events.append,
            self.notes.append,
        )

    def model(self, script: str, name: str = "m", **fields: Any) -> ModelSpec:
        env = {"SCRIPT": script, **fields.pop("env", {})}
        self.specs[name] = ModelSpec(name, "/m.gguf", files=("/m.gguf:1:1",), env=env, **fields)
        return self.specs[name]

    def measure(self, child: int = 1, name: str = "m") -> list[Event]:
        """All that is told until the exit, but for what the devices show."""
        self.events.clear()
        self.measurer.measure(Measure(child, name))
        run_until(self.loop, lambda: any(isinstance(e, ChildExited | ChildNotSpawned) for e in self.events))
        assert self.measurer.running() == []
        return [event for event in self.events if not isinstance(event, MemoryRead)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    assert not children_left()
    bench.loop.close()


def test_what_a_child_measured_is_told_with_its_exit(bench: Bench) -> None:
    bench.model(GOOD, options={"ctx-size": 4096})
    assert bench.measure(3) == [
        ChildMeasured(3, NEED),
        ChildExited(3, 0, None, bench.rings["m"].tail(5, 999)),
    ]
    line = bench.rings["m"].last(1)[0].value
    start = json.loads(line.partition("start:")[2])
    assert start == {
        "role": "measure",
        "body": {"model": "m", "path": "/m.gguf", "options": {"ctx-size": 4096}},
    }


def test_it_is_measured_once_also_by_the_next_daemon(bench: Bench, tmp_path: Path) -> None:
    bench.model(GOOD)
    bench.measure()
    for again in (bench, Bench(tmp_path)):
        again.specs.update(bench.specs)
        again.measurer._commands = Commands(measure=("/bin/false",))
        assert again.measure(9) == [ChildMeasured(9, NEED), ChildExited(9, 0)]


@pytest.mark.parametrize(
    "change",
    [{"files": ("/m.gguf:1:2",)}, {"options": {"ctx-size": 1}}, {"env": {"GGML_X": "1"}}],
    ids=["file", "options", "environment"],
)
def test_something_else_is_measured_anew(bench: Bench, change: dict[str, Any]) -> None:
    spec = bench.model(GOOD)
    bench.measure()
    change = {**change, "env": {**spec.env, **change.get("env", {})}}
    bench.specs["m"] = replace(spec, **change)
    bench.rings.clear()
    bench.measure()
    assert bench.rings, "a process has spoken"


def test_devices_that_only_the_child_sees_are_on_the_books_before_its_need(bench: Bench) -> None:
    bench.model(GOOD)
    bench.measure()
    read = next(event for event in bench.events if isinstance(event, MemoryRead))
    assert [(r.name, r.total, r.free) for r in read.readings if r.name == "RPC0"] == [("RPC0", 77, None)]
    told = [type(event) for event in bench.events]
    assert told.index(MemoryRead) < told.index(ChildMeasured)


def test_a_model_with_gpus_of_its_own_choice_is_told_by_the_books_names(bench: Bench) -> None:
    bench.memory.read()
    bench.model(GOOD, env={"CUDA_VISIBLE_DEVICES": "1"})
    measured = bench.measure()[0]
    assert isinstance(measured, ChildMeasured)
    assert measured.need.minimum == {"host": 5, "CUDA1": 6}


def test_ways_to_place_a_model_are_told_by_the_books_names(bench: Bench, tmp_path: Path) -> None:
    bench.memory.read()
    bench.model(SEVERAL_WAYS, env={"CUDA_VISIBLE_DEVICES": "1,0"})
    measured = bench.measure()[0]
    assert isinstance(measured, ChildMeasured)
    assert measured.need.placements == (
        Placement(("CUDA1",), {"host": 5, "CUDA1": 60}, {"host": 7, "CUDA1": 80}),
        Placement(
            ("CUDA1", "CUDA0"),
            {"host": 5, "CUDA1": 60, "CUDA0": 60},
            {"host": 7, "CUDA1": 80, "CUDA0": 80},
            (3.0, 1.0),
        ),
    )
    again = Bench(tmp_path)
    again.memory.read()
    again.specs.update(bench.specs)
    assert again.measure()[0] == measured
    assert not again.rings, "it was kept"


def test_what_is_kept_holds_as_long_as_the_same_devices_are_seen(bench: Bench, tmp_path: Path) -> None:
    """Devices that no key tells of: another model's child has seen a new one since."""
    machine = tmp_path / "machine"
    machine.write_text(seeing(("RPC0", 5)))
    for name in "abc":
        bench.specs[name] = ModelSpec(name, "/m.gguf", files=(name,), env={"SCRIPT": f". {machine}"})
    for name in "ab":
        bench.measure(name=name)
    bench.rings.clear()
    bench.measure(name="a")
    assert not bench.rings, "nothing is new"
    machine.write_text(seeing(("RPC0", 5), ("RPC1", 5)))
    for name in "cab":
        bench.measure(name=name)
        assert bench.rings.pop(name), "measured again"
        bench.measure(name=name)
        assert not bench.rings


def test_a_gpu_that_was_missed_is_looked_for_again(bench: Bench) -> None:
    spec = bench.model(seeing(), options={"n-gpu-layers": 9})
    assert bench.measure()
    bench.rings.clear()
    bench.measure()
    assert bench.rings, "measured again"
    assert [note.kind for note in bench.notes] == ["no-gpu"] * 2
    bench.specs["m"] = replace(spec, options={})
    bench.measure()
    bench.rings.clear()
    bench.measure()
    assert not bench.rings, "nobody has asked for one"


def test_an_instance_is_compared_with_the_way_it_was_placed(bench: Bench) -> None:
    spec = bench.model(SEVERAL_WAYS)
    bench.measure()
    way = Placement(("CUDA0",), {"CUDA0": 60}, {"host": 7, "CUDA0": 80})
    payload = {"bytes": {"host": 7, "CUDA0": 80}}
    bench.measurer.compare(Instance(2, spec, "t", "", placement=way, ready_payload=payload))
    assert bench.notes == []
    bench.measurer.compare(Instance(2, spec, "t", "", ready_payload=payload))
    assert [note.kind for note in bench.notes] == ["measured-wrong"]


@pytest.mark.parametrize(
    "broken",
    [
        5,
        [5],
        [{**WAYS[0], "devices": []}],
        [{**WAYS[0], "devices": [5]}],
        [{**WAYS[0], "split": [1, 2]}],
        [{**WAYS[0], "split": ["1"]}],
        [{**WAYS[0], "minimum": 5}],
        [WAYS[0]] * 257,
    ],
    ids=["number", "numbers", "no device", "no name", "shares", "words", "no bytes", "too many"],
)
def test_ways_that_are_none(bench: Bench, broken: Any) -> None:
    bench.model(says("measured", **RESULT, placements=broken))
    failed, _ = bench.measure()
    assert isinstance(failed, ChildFailed)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            says("measuring") + says("failed", kind="measure-failed", message="cannot x") + "exit 1",
            "cannot x",
        ),
        (says("measured", minimum=5), "it is not in bytes by device"),
        (says("ready") + says("measuring"), "cannot take the report"),
        (f"echo '{REPORT}{{broken'; sleep 60", "cannot read a line"),
    ],
    ids=["says why", "no result", "disorder", "broken"],
)
def test_a_child_that_cannot_measure(bench: Bench, script: str, said: str) -> None:
    bench.model(script)
    failed, exited = bench.measure()
    assert isinstance(failed, ChildFailed)
    assert (failed.kind, said in failed.message) == ("measure-failed", True), failed
    assert isinstance(exited, ChildExited)
    assert bench.needs.get("x") is None


def test_one_that_says_nothing_at_all_ends_and_is_heard_of(bench: Bench) -> None:
    bench.model("echo last words >&2; exit 3")
    (exited,) = bench.measure()
    assert isinstance(exited, ChildExited)
    assert (exited.exit_code, exited.tail.endswith("last words")) == (3, True)


def test_one_that_takes_too_long_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MEASURE_S_MAX", 0.1)
    bench.model("sleep 60")
    failed, exited = bench.measure()
    assert isinstance(failed, ChildFailed)
    assert "no result after" in failed.message
    assert isinstance(exited, ChildExited)
    assert exited.signal == 9


def test_it_can_be_called_off(bench: Bench) -> None:
    bench.model("sleep 60")
    bench.measurer.measure(Measure(1, "m"))
    assert [running.child for running in bench.measurer.running()] == [1]
    bench.measurer.kill(Kill(1))
    bench.measurer.kill(Kill(2))
    run_until(bench.loop, lambda: any(isinstance(event, ChildExited) for event in bench.events))


def test_what_is_not_configured_any_more(bench: Bench) -> None:
    assert bench.measure(name="gone") == [ChildNotSpawned(1, "the model is not configured any more")]


@pytest.mark.parametrize("fail_at", [1, 4, 8])
def test_a_failed_spawn_is_told(tmp_path: Path, fail_at: int) -> None:
    bench = Bench(tmp_path, FailingKernel(fail_at))
    bench.model(GOOD)
    (event,) = bench.measure()
    assert isinstance(event, ChildNotSpawned)
    assert not children_left()
    bench.loop.close()


def test_layers_for_a_gpu_that_nobody_sees_are_spoken_of(bench: Bench) -> None:
    blind = {**RESULT, "devices": [RESULT["devices"][0]]}
    bench.model(says("measured", **blind), options={"n-gpu-layers": -1})
    bench.measure()
    assert [(note.kind, note.model) for note in bench.notes] == [("no-gpu", "m")]
    bench.model(GOOD, name="other", options={"n-gpu-layers": 5})
    bench.measure(2, "other")
    assert len(bench.notes) == 1


@pytest.mark.parametrize(
    ("options", "asks"), [({}, False), ({"n-gpu-layers": 0}, False), ({"n-gpu-layers": -1}, True)]
)
def test_who_asks_for_a_gpu(options: dict[str, Any], asks: bool) -> None:
    assert asks_for_gpu(ModelSpec("m", "/m", options=options)) is asks


@pytest.mark.parametrize(
    ("held", "kept"),
    [({"host": 7, "CUDA0": 8}, True), ({"host": 4}, True), ({"host": 99, "CUDA0": 8}, False), ({"Vulkan0": 1}, False), (None, True)],
)  # fmt: skip
def test_an_instance_that_takes_more_than_was_measured_is_measured_anew(
    bench: Bench, held: dict[str, int] | None, kept: bool
) -> None:
    spec = bench.model(GOOD)
    bench.measure()
    bench.measurer.compare(Instance(2, spec, "t", "", ready_payload={"bytes": held}))
    assert [note.kind for note in bench.notes] == ([] if kept else ["measured-wrong"])
    assert (NeedDoubted(spec.name) in bench.events) is not kept
    bench.rings.clear()
    bench.measure()
    assert bool(bench.rings) is not kept
