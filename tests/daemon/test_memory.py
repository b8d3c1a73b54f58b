"""The probes on machines that are made of files and of a NVML that says what it is told, and the books over them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llamad.core.events import Event, MemoryRead
from llamad.core.ledger import Ledger
from llamad.daemon.gpus import RETRY_S, Gpus, find_nvml, visible
from llamad.daemon.host_memory import HostMemory, Use
from llamad.daemon.loop import Loop
from llamad.daemon.memory import READ_EVERY_S, Child, Memory
from tests.daemon.fake_machine import GIB, MIB, FakeGpu, FakeHost, FakeNvml
from tests.daemon.parts import HandClock

# ---- the host


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def probe(host: FakeHost) -> HostMemory:
    return HostMemory(str(host.root))


def test_without_any_group_the_machine_counts(host: FakeHost) -> None:
    assert probe(host).read() == (32 * GIB, 30 * GIB)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.max": "max", "memory.current": 5 * GIB}, (32 * GIB, 30 * GIB)),
        ({"memory.max": 8 * GIB, "memory.current": 3 * GIB, "memory.stat": ""}, (8 * GIB, 5 * GIB)),
        (
            {
                "memory.max": 8 * GIB,
                "memory.current": 7 * GIB,
                "memory.stat": f"anon {GIB}\nactive_file {4 * GIB}\ninactive_file {GIB}\nslab_reclaimable {GIB}\n",
            },
            (8 * GIB, 7 * GIB),
        ),
        (
            {"memory.max": "max", "memory.high": 6 * GIB, "memory.current": GIB, "memory.stat": ""},
            (6 * GIB, 5 * GIB),
        ),
        ({"memory.max": 8 * GIB, "memory.current": 9 * GIB, "memory.stat": ""}, (8 * GIB, 0)),
        ({"memory.max": 64 * GIB, "memory.current": 0, "memory.stat": ""}, (32 * GIB, 30 * GIB)),
    ],
    ids=["no limit", "limit", "pages of files are free", "high", "over the limit", "limit above the machine"],
)
def test_a_group_of_version_2(host: FakeHost, files: dict[str, object], expected: tuple[int, int]) -> None:
    host.group_v2("/system.slice/llamad.service")
    for name, text in files.items():
        host.write(f"sys/fs/cgroup/system.slice/llamad.service/{name}", text)
    assert probe(host).read() == expected


def test_every_level_counts(host: FakeHost) -> None:
    """The slice has less than the unit, and another unit in it has used some."""
    host.group_v2("/a.slice/b.service")
    for level, limit, used in (("a.slice", 4 * GIB, 3 * GIB), ("a.slice/b.service", 8 * GIB, GIB)):
        host.write(f"sys/fs/cgroup/{level}/memory.max", limit)
        host.write(f"sys/fs/cgroup/{level}/memory.current", used)
        host.write(f"sys/fs/cgroup/{level}/memory.stat", "")
    assert probe(host).read() == (4 * GIB, GIB)


def test_a_group_of_version_1_beside_an_empty_hierarchy_of_version_2(host: FakeHost) -> None:
    host.group_v1("/docker/1")
    directory = "sys/fs/cgroup/memory/docker/1"
    host.write(f"{directory}/memory.limit_in_bytes", 2 * GIB)
    host.write(f"{directory}/memory.usage_in_bytes", 2 * GIB)
    host.write(
        f"{directory}/memory.stat", f"total_inactive_file {GIB}\ntotal_active_file {MIB}\ninactive_file 5\n"
    )
    host.write("sys/fs/cgroup/memory/memory.limit_in_bytes", 2**63 - 4096)
    assert probe(host).read() == (2 * GIB, GIB + MIB)


def test_in_a_container_the_mount_is_the_group(host: FakeHost) -> None:
    host.group_v2("/docker/1", at="/sys/fs/cgroup with blank".replace(" ", "\\040"), root="/docker/1")
    host.write("sys/fs/cgroup with blank/memory.max", GIB)
    host.write("sys/fs/cgroup with blank/memory.current", MIB)
    host.write("sys/fs/cgroup with blank/memory.stat", "")
    assert probe(host).read() == (GIB, GIB - MIB)


def test_a_path_that_leads_out_of_the_namespace_is_not_followed(host: FakeHost) -> None:
    host.group_v2("/../../elsewhere")
    host.write("sys/fs/cgroup/memory.max", "max")
    assert probe(host).read() == (32 * GIB, 30 * GIB)


@pytest.mark.parametrize(
    ("fields", "use"),
    [
        ({"RssAnon": 3, "RssFile": 5, "RssShmem": 1}, Use(4, 9)),
        ({"RssAnon": 3, "RssFile": 5, "VmLck": 4}, Use(7, 8)),
        ({"RssAnon": 9, "RssFile": 1, "VmLck": 8}, Use(9, 10)),
        ({}, Use(0, 0)),
    ],
    ids=["mapped weights are nobody's", "locked weights are ours", "locked memory once", "zombie"],
)
def test_what_a_process_is_answerable_for(host: FakeHost, fields: dict[str, int], use: Use) -> None:
    host.process(7, **{name: amount * MIB for name, amount in fields.items()})
    assert probe(host).used_by(7) == Use(use.counted * MIB, use.resident * MIB)


def test_descendants_count_and_whoever_is_gone_does_not(host: FakeHost) -> None:
    host.process(7, children=(8, 99), RssAnon=MIB)
    host.process(8, children=(9,), RssAnon=2 * MIB)
    host.process(9, RssAnon=4 * MIB)
    assert probe(host).used_by(7).counted == 7 * MIB
    assert probe(host).used_by(98) == Use()


def test_the_real_machine() -> None:
    memory = HostMemory()
    total, free = memory.read()
    assert 0 < free <= total
    own = memory.used_by(os.getpid())
    assert MIB < own.counted <= own.resident <= total
    block = bytearray(64 * MIB)
    block[::4096] = b"x" * len(block[::4096])
    assert memory.used_by(os.getpid()).counted - own.counted > 48 * MIB


def test_pages_of_a_file_are_nobodys_on_the_real_machine(tmp_path: Path) -> None:
    """What a mapped model does: its pages are resident, but neither counted nor missing."""
    file = tmp_path / "weights"
    file.write_bytes(b"w" * (64 * MIB))
    script = "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); sum(m[::4096]); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        use = HostMemory().used_by(process.pid)
        process.kill()
    assert use.resident > 64 * MIB
    assert use.counted < 48 * MIB


# ---- GPUs


def test_gpus_by_the_names_that_children_use() -> None:
    nvml = FakeNvml(FakeGpu("GPU-a", used=GIB), FakeGpu("GPU-b", total=16 * GIB))
    readings = Gpus({}, nvml).read(0.0)
    assert [(r.name, r.total, r.free) for r in readings] == [
        ("CUDA0", 24 * GIB, 23 * GIB),
        ("CUDA1", 16 * GIB, 16 * GIB),
    ]
    assert [r.name for r in Gpus({"CUDA_VISIBLE_DEVICES": "1"}, nvml).read(0.0)] == ["CUDA0"]
    assert Gpus({"CUDA_VISIBLE_DEVICES": "1"}, nvml).read(0.0)[0].total == 16 * GIB


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, ["GPU-a", "GPU-b", "GPU-c"]),
        ("", []),
        ("2,0", ["GPU-c", "GPU-a"]),
        ("GPU-b, 0", ["GPU-b", "GPU-a"]),
        ("0,7,1", ["GPU-a"]),
        ("0,-1,1", ["GPU-a"]),
        ("1,1", ["GPU-b"]),
        ("GPU-", []),
        ("MIG-x,1", ["MIG-x", "GPU-b"]),
    ],
)
def test_what_the_environment_leaves_visible(value: str | None, seen: list[str]) -> None:
    assert visible(["GPU-a", "GPU-b", "GPU-c"], value) == seen


def test_a_models_own_choice_of_gpus_is_translated() -> None:
    gpus = Gpus({"CUDA_VISIBLE_DEVICES": "0"}, FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b")))
    assert [r.name for r in gpus.read(0.0)] == ["CUDA0"]
    assert gpus.names({}) == {}
    assert gpus.names({"CUDA_VISIBLE_DEVICES": "1,0"}) == {"CUDA0": "GPU-b", "CUDA1": "CUDA0"}
    assert [r.name for r in gpus.read(0.0)] == ["CUDA0", "GPU-b"], "now that somebody uses it"


def test_a_partitioned_gpu_is_left_out_and_keeps_its_number() -> None:
    gpus = Gpus({}, FakeNvml(FakeGpu("GPU-a", partitioned=True), FakeGpu("GPU-b")))
    assert [r.name for r in gpus.read(0.0)] == ["CUDA1"]


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo"])
def test_a_driver_that_fails_is_asked_again_later(call: str) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"))
    gpus = Gpus({}, nvml)
    nvml.fails = call
    assert gpus.read(0.0) == []
    nvml.fails = ""
    assert gpus.read(RETRY_S / 2) == [], "not on every look"
    assert [r.name for r in gpus.read(RETRY_S + 1)] == ["CUDA0"]
    assert nvml.opened == 1


def test_without_nvml_there_are_no_gpus() -> None:
    gpus = Gpus({}, None)
    assert gpus.read(0.0) == []
    assert gpus.names({"CUDA_VISIBLE_DEVICES": "0"}) == {}


def test_the_real_nvml_says_no_in_its_own_way() -> None:
    """On a machine without the driver, too, nothing is raised."""
    nvml = find_nvml()
    assert nvml is not None
    for reading in Gpus({}, nvml).read(0.0):
        assert 0 <= reading.free <= reading.total


# ---- both, and the books over them


class Machine:
    def __init__(self, host: FakeHost, *gpus: FakeGpu) -> None:
        self.clock = HandClock()
        self.loop = Loop(self.clock)
        self.host = host
        self.children: list[Child] = []
        self.sessions: dict[int, int] = {}
        self.events: list[Event] = []
        self.memory = Memory(
            self.loop,
            HostMemory(str(host.root)),
            Gpus({}, FakeNvml(*gpus)),
            lambda: self.children,
            lambda pid: self.sessions.get(pid, 0),
            self.events.append,
        )
        self.ledger = Ledger()
        self.ledger.keep_free(0)

    def book(self, *, settled: bool = True) -> Any:
        self.memory.read()
        event = self.events.pop()
        assert isinstance(event, MemoryRead)
        self.ledger.read(event.readings, settled=settled, asked=False, now=self.clock.now)
        return self.ledger


def test_weights_that_are_mapped_are_on_the_books_once(host: FakeHost) -> None:
    """20 GiB of weights in the page cache: the kernel calls them available, the books say they are held."""
    machine = Machine(host)
    host.memory(32 * GIB, 28 * GIB)
    assert machine.book().device("host").external == 4 * GIB
    machine.children = [Child(1, 100)]
    machine.ledger.reserve(1, "a", {"host": 21 * GIB})
    host.process(100, RssAnon=GIB, RssFile=20 * GIB)
    host.memory(32 * GIB, 27 * GIB)
    device = machine.book().device("host")
    assert (device.external, device.held, device.available) == (4 * GIB, 21 * GIB, 7 * GIB)


def test_weights_that_are_locked_are_on_the_books_once_too(host: FakeHost) -> None:
    machine = Machine(host)
    machine.children = [Child(1, 100)]
    machine.ledger.reserve(1, "a", {"host": 21 * GIB})
    host.process(100, RssAnon=GIB, RssFile=20 * GIB, VmLck=20 * GIB)
    host.memory(32 * GIB, 7 * GIB)
    assert machine.book().device("host").external == 4 * GIB


def test_external_use_never_goes_below_nothing(host: FakeHost) -> None:
    """The kernel's counters are not read at one moment, and drift."""
    machine = Machine(host)
    machine.children = [Child(1, 100)]
    machine.ledger.reserve(1, "a", {"host": 5 * GIB})
    host.process(100, RssAnon=5 * GIB)
    host.memory(32 * GIB, 30 * GIB)
    assert machine.book().device("host").external == 0


def test_while_a_child_loads_it_is_never_taken_for_somebody_else(host: FakeHost) -> None:
    machine = Machine(host, gpu := FakeGpu("GPU-a"))
    machine.children = [Child(1, 100)]
    machine.sessions = {100: 100}
    machine.ledger.reserve(1, "a", {"host": 9 * GIB, "CUDA0": 20 * GIB})
    for anonymous in (0, 1, 5, 9):
        host.process(100, RssAnon=anonymous * GIB)
        host.memory(32 * GIB, (30 - anonymous) * GIB)
        gpu.used, gpu.processes = 2 * anonymous * GIB, {100: 2 * anonymous * GIB} if anonymous else {}
        books = machine.book(settled=False)
        assert books.device("host").external == 2 * GIB
        assert books.device("CUDA0").external == 0


def test_a_gpus_processes_are_ours_by_their_session(host: FakeHost) -> None:
    gpu = FakeGpu("GPU-a", used=12 * GIB, processes={100: 5 * GIB, 101: GIB, 555: 6 * GIB})
    machine = Machine(host, gpu)
    machine.children = [Child(1, 100), Child(2, 200)]
    machine.sessions = {100: 100, 101: 100, 200: 200, 555: 5}
    machine.ledger.reserve(1, "a", {"CUDA0": 7 * GIB})
    machine.ledger.reserve(2, "b", {})
    device = machine.book().device("CUDA0")
    assert (device.external, device.available) == (6 * GIB, 11 * GIB)
    assert machine.ledger.measured(1)["CUDA0"] == 6 * GIB
    assert machine.memory.used() == {1: {"host": 0}, 2: {"host": 0}}, "nobody has asked for books"
    machine.memory.read_regularly(True)
    assert machine.memory.used()[1]["CUDA0"] == 6 * GIB


@pytest.mark.parametrize("processes", [{}, {31: 5 * GIB}, {100: None}])
def test_a_gpu_that_does_not_know_our_processes_is_booked_by_promises(
    host: FakeHost, processes: dict[int, int | None]
) -> None:
    """As in a container, where it counts by the pids of the machine."""
    machine = Machine(host, FakeGpu("GPU-a", used=12 * GIB, processes=processes))
    machine.children = [Child(1, 100)]
    machine.sessions = {100: 100}
    machine.ledger.reserve(1, "a", {"CUDA0": 7 * GIB})
    assert machine.book(settled=False).device("CUDA0").external == 5 * GIB, "the first look has to believe"
    machine.ledger.device("CUDA0").external = 6 * GIB  # type: ignore[union-attr]
    assert machine.book(settled=False).device("CUDA0").external == 6 * GIB, (
        "while somebody loads the last figure stays"
    )
    machine.ledger.device("CUDA0").external = 1  # type: ignore[union-attr]
    assert machine.book(settled=False).device("CUDA0").external == 5 * GIB, (
        "what is used beyond all promises is others'"
    )
    assert machine.book().device("CUDA0").external == 5 * GIB


def test_a_device_that_only_a_measure_child_sees(host: FakeHost) -> None:
    machine = Machine(host, FakeGpu("GPU-a"))
    machine.memory.learn(
        [
            {"name": "host", "total_bytes": 5},
            {"name": "CUDA0", "total_bytes": 6},
            {"name": "RPC0[127.0.0.1:50052]", "total_bytes": 8 * GIB, "free_bytes": 3},
            {"name": "odd"},
            "odd",
        ]
    )
    machine.ledger.reserve(1, "a", {"RPC0[127.0.0.1:50052]": 3 * GIB})
    books = machine.book()
    assert [device.name for device in books.memories()] == ["host", "CUDA0", "RPC0[127.0.0.1:50052]"]
    assert books.device("CUDA0").total == 24 * GIB
    assert books.device("RPC0[127.0.0.1:50052]").available == 5 * GIB


def test_it_is_read_regularly_until_nobody_wants_it(host: FakeHost) -> None:
    machine = Machine(host)
    machine.memory.read_regularly(True)
    machine.memory.read_regularly(True)
    assert len(machine.events) == 1
    for _ in range(3):
        machine.clock.now += READ_EVERY_S
        machine.loop.run_once(0)
    assert len(machine.events) == 4
    machine.memory.read_regularly(False)
    machine.clock.now += READ_EVERY_S
    machine.loop.run_once(0)
    assert len(machine.events) == 4


def test_a_machine_that_says_nothing_has_no_host_on_its_books(host: FakeHost) -> None:
    host.write("proc/meminfo", "MemTotal: 5 kB\n")
    assert [reading.name for reading in Machine(host, FakeGpu("GPU-a")).memory.readings()] == ["CUDA0"]
