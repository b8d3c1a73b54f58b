"""Starting children: which program, which environment, which pipes.

A child gets what it needs and nothing else: a minimal environment, three pipes, a session of its own (so that Ctrl-C on
the terminal reaches the supervisor only), and its role and secrets in its first line on stdin, never in argv.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llamad.daemon.kernel import Exit, Kernel
from llamad.daemon.loop import Loop
from llamad.daemon.pipes import PipeEnds
from llamad.daemon.process import ChildProcess
from llamad.wire.child import ROLE_ENV

# -P keeps the working directory off the import path: a file there must not become one of our modules.
CHILD_COMMAND = (sys.executable, "-P", "-m", "llamad", "child")
PROXY_COMMAND = (sys.executable, "-P", "-m", "llamad.proxy")

_NAMES = frozenset(
    (
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH",
        "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
    )
)  # fmt: skip
_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "NCCL_", "HIP_", "ROCR_", "HSA_", "GPU_", "VK_", "SYCL_", "ONEAPI_", "ZE_",
    "GGML_", "GOMP_", "OMP_", "KMP_", "OPENBLAS_", "MKL_",
)  # fmt: skip
# A scan reads what the daemon read: where directories are by default, and options from the environment.
_SCAN_NAMES = frozenset(
    (
        "RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CREDENTIALS_DIRECTORY", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
        "HF_HOME", "HF_HUB_CACHE",
    )
)  # fmt: skip
_SCAN_PREFIXES = ("LLAMA_", "LLAMAD_")
SECRET_NAMES = frozenset(("LLAMA_API_KEY", "LLAMA_ARG_API_KEY"))
"""Never in a child's environment, which whoever has the child's user can read. A scan gets them on its stdin."""
_FIXED = {
    # How long OpenMP's threads spin where they wait for each other: two milliseconds, or less (llamad.engine.spinning).
    # Without end, as by default, those of one instance starve its neighbours.
    "GOMP_SPINCOUNT": "40000",
    "OMP_WAIT_POLICY": "active",
    # On an abort GGML would start gdb, which waits for ever.
    "GGML_NO_BACKTRACE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}

# GPUs in the order in which the books know them (`gpus`).
_UNLESS_SET = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def child_environment(
    environ: Mapping[str, str], role: str, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What a child of `role` sees of our environment, plus the model's own `env.NAME` entries, which win."""
    scans = role == "scan"
    names = _NAMES | _SCAN_NAMES if scans else _NAMES
    prefixes = _PREFIXES + _SCAN_PREFIXES if scans else _PREFIXES
    kept = {
        key: value
        for key, value in environ.items()
        if (key in names or key.startswith(prefixes)) and key not in SECRET_NAMES
    }
    return {**_UNLESS_SET, **kept, **_FIXED, ROLE_ENV: role, **(extra or {})}


def device_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Of a child's environment, what may change which devices it sees and what it takes of them."""
    prefixes = tuple(prefix for prefix in _PREFIXES if prefix not in ("LC_", "GOMP_", "OMP_", "KMP_"))
    return {key: value for key, value in environment.items() if key.startswith(prefixes)}


@dataclass(frozen=True, slots=True)
class Commands:
    """The programs to start. Tests put their own here; production has no other way to change them."""

    instance: tuple[str, ...] = CHILD_COMMAND
    measure: tuple[str, ...] = CHILD_COMMAND
    scan: tuple[str, ...] = CHILD_COMMAND
    proxy: tuple[str, ...] = PROXY_COMMAND


class Spawner:
    """Makes ChildProcesses. A failure on the way leaves no descriptor and no process behind."""

    def __init__(self, loop: Loop, kernel: Kernel, environ: Mapping[str, str]) -> None:
        self._loop = loop
        self._kernel = kernel
        self._environ = environ
        self._living: dict[int, str] = {}

    def living(self) -> Mapping[int, str]:
        """Every process that was started and has not been waited for: pid to role."""
        return self._living

    def environment(self, role: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return child_environment(self._environ, role, extra)

    def spawn(
        self,
        command: tuple[str, ...],
        role: str,
        *,
        on_report: Callable[[bytes], None],
        on_log: Callable[[bytes], None],
        on_exit: Callable[[Exit], None],
        environment: Mapping[str, str] | None = None,
        inherit: tuple[int, ...] = (),
        whole_group: bool = True,
    ) -> ChildProcess:
        """Raises OSError. `environment`: entries on top of the minimal ones; `inherit`: descriptors 3, 4, ... there."""
        pipes: list[tuple[int, int]] = []
        try:
            for _ in range(3):
                pipes.append(self._kernel.pipe())
            (stdin_theirs, stdin), (stdout, stdout_theirs), (stderr, stderr_theirs) = pipes
            for fd in (stdin, stdout, stderr):
                self._kernel.set_nonblocking(fd)
            pid, pidfd = self._start(
                list(command),
                self.environment(role, environment),
                (stdin_theirs, stdout_theirs, stderr_theirs),
                inherit,
            )
        except BaseException:
            for pair in pipes:
                os.close(pair[0])
                os.close(pair[1])
            raise
        for fd in (stdin_theirs, stdout_theirs, stderr_theirs):
            self._kernel.close(fd)
        self._living[pid] = role

        def exited(ended: Exit) -> None:
            del self._living[pid]
            on_exit(ended)

        return ChildProcess(
            self._loop,
            self._kernel,
            pid,
            pidfd,
            PipeEnds(stdin, stdout, stderr),
            on_report=on_report,
            on_log=on_log,
            on_exit=exited,
            whole_group=whole_group,
        )

    def _start(
        self,
        argv: list[str],
        environment: dict[str, str],
        stdio: tuple[int, int, int],
        inherit: tuple[int, ...],
    ) -> tuple[int, int]:
        pid = self._kernel.spawn(argv, environment, stdio, inherit)
        try:
            return pid, self._kernel.pidfd_open(pid)
        except OSError:
            self._kernel.kill_and_reap(pid)
            raise
