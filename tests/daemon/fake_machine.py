"""A machine for the memory probes: proc and cgroup files in a directory, and an NVML that says what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20
GIB = 1 << 30


class FakeHost:
    """The files that `HostMemory` reads. Sizes in bytes."""

    def __init__(self, root: Path, total: int = 32 * GIB, available: int = 30 * GIB) -> None:
        self.root = root
        self.memory(total, available)
        self.write("proc/self/cgroup", "")
        self.write("proc/self/mountinfo", "")

    def memory(self, total: int, available: int) -> None:
        text = f"MemTotal: {total // 1024} kB\nMemFree: 0 kB\nMemAvailable: {available // 1024} kB\nHugePages_Total: 0\n"
        self.write("proc/meminfo", text)

    def process(self, pid: int, *, children: tuple[int, ...] = (), **fields: int) -> None:
        """`fields` as in /proc/PID/status: RssAnon, RssFile, RssShmem, VmLck."""
        lines = [f"{name}:\t{amount // 1024} kB" for name, amount in fields.items()]
        self.write(f"proc/{pid}/status", "\n".join(["Name:\tx: y", *lines]))
        self.write(f"proc/{pid}/task/{pid}/children", " ".join(map(str, children)))

    def group_v2(self, path: str, *, at: str = "/sys/fs/cgroup", root: str = "/") -> None:
        self.write("proc/self/cgroup", f"0::{path}\n")
        self.write(
            "proc/self/mountinfo", f"31 23 0:28 {root} {at} rw,relatime shared:4 - cgroup2 cgroup2 rw\n"
        )

    def group_v1(self, path: str, *, at: str = "/sys/fs/cgroup/memory", root: str = "/") -> None:
        self.write("proc/self/cgroup", f"5:devices:/\n4:memory:{path}\n0::/\n")
        lines = [
            f"35 31 0:32 {root} {at} rw,relatime - cgroup cgroup rw,memory",
            "36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices",
            "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw",
        ]
        self.write("proc/self/mountinfo", "\n".join(lines))

    def write(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(text))


@dataclass
class FakeGpu:
    uuid: str
    total: int = 24 * GIB
    used: int = 0
    processes: dict[int, int | None] = field(default_factory=dict)
    partitioned: bool = False


class FakeNvml:
    """What `Gpus` uses of pynvml. `fails` is raised by the call of that name."""

    class NVMLError(Exception):
        pass

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.fails = ""
        self.opened = 0

    def nvmlInit(self) -> None:
        self._call("nvmlInit")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self._call("nvmlShutdown")
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        self._call("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        return [int(gpu.partitioned), 0]

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:
        self._call("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(total=gpu.total, free=gpu.total - gpu.used, used=gpu.used)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        self._call("nvmlDeviceGetComputeRunningProcesses")
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in gpu.processes.items()]

    def _call(self, name: str) -> None:
        if name == self.fails:
            raise self.NVMLError(f"{name} fails")
