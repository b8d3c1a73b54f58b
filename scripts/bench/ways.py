"""The ways to an instance that the front's bench compares: llamad's port and llama.cpp's router, each next to an instance alone.

A way knows where its instance answers directly, where it answers through the front, and which processes are the front.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

# For the script in the folder above.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from free_port import free_port
from raw_client import is_served
from serve import Door, direct, through_port

WORKER_TITLE = "llamad: proxy worker"
# What a llamad has unless it is told otherwise.
WORKERS = 2
START_S = 60.0


@dataclass(frozen=True)
class Way:
    """`processes` relay. `direct` and `through` lead to instances of the same model with the same settings."""

    name: str
    direct: Door
    through: Door
    processes: list[psutil.Process] = field(compare=False)

    def cpu_s(self) -> float:
        """What the front's processes have used, to the nanosecond."""
        return sum(time.clock_gettime(_cpu_clock(process.pid)) for process in self.processes)

    def memory_mib(self) -> list[float]:
        """What each of them alone holds (USS); pages that workers share count for nobody."""
        return [round(process.memory_full_info().uss / 2**20, 1) for process in self.processes]


@contextlib.contextmanager
def llamad_way(model: Path, options: dict[str, int]) -> Iterator[Way]:
    """An instance as the supervisor starts it, and a llamad with one of its own."""
    with direct(model, options) as at_instance, through_port(model, options) as at_port:
        yield Way("llamad", at_instance, at_port, _workers())


@contextlib.contextmanager
def router_way(server: Path, model: Path, options: dict[str, int], warm_up: bytes) -> Iterator[Way]:
    """llama.cpp's server without a model of its own, which starts one for each that is asked for; `warm_up` asks."""
    folder = Path(tempfile.mkdtemp(prefix="llamad-bench-"))
    port = free_port(0)
    lines = [
        "version = 1",
        "[bench]",
        f"model = {model}",
        *(f"{key} = {value}" for key, value in options.items()),
    ]
    (folder / "models.ini").write_text("\n".join(lines) + "\n")
    command = [
        str(server),
        "--models-preset",
        str(folder / "models.ini"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with (folder / "log").open("wb") as log:
        router = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        through = Door("127.0.0.1", port, "", "bench")
        yield Way("router", _router_child(router, through, warm_up), through, [psutil.Process(router.pid)])
    finally:
        router.terminate()
        router.wait(START_S)
        shutil.rmtree(folder)


def _router_child(router: subprocess.Popen[bytes], through: Door, warm_up: bytes) -> Door:
    """Where the instance itself listens, once it has been asked for."""
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and router.poll() is None:
        with contextlib.suppress(OSError):
            if is_served(through, "/tokenize", warm_up):
                (child,) = psutil.Process(router.pid).children()
                words = child.cmdline()
                return Door("127.0.0.1", int(words[words.index("--port") + 1]), "", "bench")
        time.sleep(0.1)
    raise SystemExit("cannot start llama.cpp's router")


def _workers() -> list[psutil.Process]:
    """All of them: one that is not counted would relay for nothing."""
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        children = psutil.Process().children(recursive=True)
        workers = [child for child in children if " ".join(child.cmdline()).startswith(WORKER_TITLE)]
        if len(workers) == WORKERS:
            return workers
        time.sleep(0.1)
    raise SystemExit(f"cannot find the {WORKERS} workers of llamad's front")


def _cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time (clock_getcpuclockid)."""
    return (~pid << 3) | 2
