"""A real `python -m llamad child`, driven by its pipes as the supervisor does it."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from llamad.wire.child import ChildLink, Exit, Report, Start, State, Stats, encode, parse_report


class Child:
    """One child process; `reports` collects what it says, `stderr` what it logs."""

    def __init__(self, role: str | None = None, body: dict[str, Any] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "llamad", "child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.reports: list[Report] = []
        self.strays: list[bytes] = []
        self.stderr = bytearray()
        self._link = ChildLink()
        self._arrived: queue.Queue[Report | None] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read_reports, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        if role is not None:
            self.send(encode(Start(role, body or {})))

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for thread in self._threads:
            thread.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def send(self, line: bytes) -> None:
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def ask_exit(self) -> None:
        self.send(encode(Exit()))

    def close_stdin(self) -> None:
        self.process.stdin.close()

    def exit_status(self, within_s: float) -> int:
        """Wait for the end, and for the last words."""
        status = self.process.wait(within_s)
        for thread in self._threads:
            thread.join(5)
        return status

    def wait_report(self, wanted: Callable[[Report], bool], within_s: float = 60.0) -> Report:
        """The first report from now on that is `wanted`."""
        deadline = time.monotonic() + within_s
        while True:
            report = self._arrived.get(timeout=max(0.01, deadline - time.monotonic()))
            if report is None:
                raise AssertionError(f"the child ended first: {self.stderr.decode(errors='replace')[-2000:]}")
            if wanted(report):
                return report

    def wait_state(self, state: str, within_s: float = 60.0) -> dict[str, Any]:
        """The payload of the first report of `state` from now on."""
        report = self.wait_report(
            lambda report: isinstance(report, State) and report.state == state, within_s
        )
        assert isinstance(report, State)
        return report.payload

    def states(self) -> list[str]:
        return [report.state for report in self.reports if isinstance(report, State)]

    def stats(self) -> list[dict[str, Any]]:
        return [report.body for report in self.reports if isinstance(report, Stats)]

    def rss_mib(self) -> float:
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20

    def _read_reports(self) -> None:
        for line in self.process.stdout:
            report = parse_report(line)
            if report is None:
                self.strays.append(line)
                continue
            self._link.receive(report)
            self.reports.append(report)
            self._arrived.put(report)
        self._arrived.put(None)

    def _read_stderr(self) -> None:
        for line in self.process.stderr:
            self.stderr += line
