"""One child process from spawn to exit.

    RUNNING --pidfd readable--> DRAINING --both pipes at their end--> GONE (waited for, reported once)

The pid is waited for last: as long as it is a zombie its number, and that of its process group, cannot be used again,
so signals to the group are safe until then.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from enum import Enum

from llamad.daemon.kernel import Exit, Kernel
from llamad.daemon.loop import Loop
from llamad.daemon.pipes import ChildPipes, CommandWriter, LineReader, PipeEnds
from llamad.wire.child import LINE_BYTES_MAX
from llamad.wire.lines import LineBuffer

LOG_LINE_BYTES_MAX = 4096


class ProcessState(Enum):
    RUNNING = "running"
    DRAINING = "draining"
    GONE = "gone"


class ChildProcess:
    """A running child. `on_report` gets lines of its stdout, `on_log` lines of its stderr, `on_exit` its end, once.

    `whole_group`: processes that the child itself started end with it.
    """

    def __init__(
        self,
        loop: Loop,
        kernel: Kernel,
        pid: int,
        pidfd: int,
        ends: PipeEnds,
        *,
        on_report: Callable[[bytes], None],
        on_log: Callable[[bytes], None],
        on_exit: Callable[[Exit], None],
        whole_group: bool = True,
    ) -> None:
        self.pid = pid
        self.started_at = loop.now()
        self.state = ProcessState.RUNNING
        self._loop = loop
        self._kernel = kernel
        self._pidfd = pidfd
        self._on_exit = on_exit
        self._whole_group = whole_group
        logs = LineBuffer(LOG_LINE_BYTES_MAX, truncate=True)
        # A line that is too long for a report is a log line that went astray: cut it, too.
        reports = LineBuffer(LINE_BYTES_MAX, truncate=True)
        self._pipes = ChildPipes(
            CommandWriter(loop, kernel, ends.stdin),
            LineReader(loop, kernel, ends.stdout, reports, on_report),
            LineReader(loop, kernel, ends.stderr, logs, on_log),
            loop,
        )
        loop.watch(pidfd, readable=self._exited)

    def send(self, data: bytes) -> None:
        """Raises ProtocolError when the child does not read."""
        self._pipes.commands.send(data)

    def close_stdin(self) -> None:
        """The strongest polite stop: end of file says that the parent is gone."""
        self._pipes.commands.close()

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def kill_group(self) -> None:
        """SIGKILL to the child and to whatever it has started."""
        if self.state is ProcessState.RUNNING:
            self._kernel.kill_group(self.pid)

    def signal(self, number: int) -> None:
        if self.state is ProcessState.RUNNING:
            self._kernel.send_signal(self._pidfd, number)

    def _exited(self) -> None:
        self._loop.unwatch(self._pidfd)
        self.state = ProcessState.DRAINING
        if self._whole_group:
            self._kernel.kill_group(self.pid)
        self._pipes.drain(self._reap)

    def _reap(self) -> None:
        ended = self._kernel.reap(self._pidfd)
        self._kernel.close(self._pidfd)
        self.state = ProcessState.GONE
        self._on_exit(ended)
