"""A device with a memory of its own for tests on machines without a GPU, and what it says of its memory.

The device is a process of its own (tests/model/rpc/server.py) that real children use through llama.cpp's RPC backend
(scripts/build_rpc_backend.py builds it): weights, caches and computation are really there, and an allocation beyond its
size really fails. A child sees it if its environment has `environment`: tests/model/rpc/site registers it then.

    with RpcDevice(300 * MIB) as device:
        device.show_to_children(monkeypatch)        # children that this process starts
        Llamad(f"[a]\\nmodel = ...\\n{device.preset}")   # children of a llamad, by their model's preset
        device.held_bytes                           # by the device's own count
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until

MIB = 1 << 20
NAME = "RPC0"
"""What ggml calls it."""
START_WITHIN_S = 20.0
STOP_WITHIN_S = 10.0
_HERE = Path(__file__).resolve().parent / "rpc"
_BUILD_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_rpc_backend.py"


class RpcDevice:
    """One device of `total_bytes`. Use it as a context manager; leaving it ends its process."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._changes: list[dict[str, Any]] = []
        """What the server said, from the first to the last (server.py)."""
        self._asked = 0
        self._library = backend_library()
        self._port = 0
        self._arrived = threading.Condition()

    def __enter__(self) -> RpcDevice:
        libggml = metadata.distribution("llama-cpp-python").locate_file("llama_cpp/lib/libggml.so.0")
        command = [sys.executable, str(_HERE / "server.py"), str(self._library), str(libggml)]
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*command, str(self.total_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._port = self._wait(lambda: self._port or self._process.poll() is not None, START_WITHIN_S)
            assert self._process.poll() is None, f"the RPC server did not start: {self.log()}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait(STOP_WITHIN_S)
        self._reader.join(STOP_WITHIN_S)
        words = self.log()
        self._log.close()
        assert status == 0, f"the RPC server ended with {status}: {words}"

    # ---- for those who use it

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """What makes it visible to a process that imports llama_cpp."""
        return environment_of(self)

    @property
    def preset(self) -> str:
        """The same as lines of a preset."""
        return preset_of(self)

    def show_to_children(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    # ---- what it says of itself

    @property
    def held_bytes(self) -> int:
        """In buffers of all its clients, now."""
        return int(self._said()[-1]["held"])

    @property
    def peak_bytes(self) -> int:
        """The most that was ever held."""
        return max(int(change["held"]) for change in self._said())

    @property
    def refused_bytes(self) -> list[int]:
        """Each allocation that there was no memory for."""
        return [int(change["bytes"]) for change in self._said() if change["event"] == "refuse"]

    def wait_held(self, condition: Callable[[int], bool], within_s: float = 10.0) -> int:
        """What is held as soon as it is so that `condition` is true."""
        wait_until(lambda: condition(self.held_bytes), within_s)
        return self.held_bytes

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4000:].decode(errors="replace")

    # ---- what others do to it

    def occupy(self, size: int) -> None:
        """Another program holds `size` bytes of it, and it says so."""
        self._order("occupy", size)
        self._said()

    def hide(self, size: int) -> None:
        """`size` bytes of what it says is free cannot be allocated, as when it is in fragments."""
        self._order("hide", size)
        self._said()

    def _said(self) -> list[dict[str, Any]]:
        """All that the server has said up to now: it takes orders one by one, and `tell` is answered."""
        self._asked += 1
        self._order("tell", self._asked)
        self._wait(self._has_answered, STOP_WITHIN_S)
        return self._changes

    def _has_answered(self) -> bool:
        told = (change["bytes"] for change in reversed(self._changes) if change["event"] == "told")
        return next(told, 0) == self._asked

    def _order(self, verb: str, number: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{verb} {number}\n")
        self._process.stdin.flush()

    def _wait(self, condition: Callable[[], Any], within_s: float) -> Any:
        with self._arrived:
            assert self._arrived.wait_for(condition, within_s), f"nothing within {within_s} s: {self.log()}"
            return condition()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            change = json.loads(line)
            with self._arrived:
                if change["event"] == "listening":
                    self._port = change["port"]
                else:
                    self._changes.append(change)
                self._arrived.notify_all()
        with self._arrived:
            self._arrived.notify_all()


def environment_of(*devices: RpcDevice) -> dict[str, str]:
    """What makes these visible to a process that imports llama_cpp, as RPC0, RPC1, ... in this order."""
    paths = [str(_HERE / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    endpoints = ",".join(device.endpoint for device in devices)
    return {"PYTHONPATH": os.pathsep.join(paths), "LLAMAD_TEST_RPC": f"{endpoints}@{backend_library()}"}


def preset_of(*devices: RpcDevice) -> str:
    """The same as lines of a preset."""
    return "".join(f"env.{name} = {value}\n" for name, value in environment_of(*devices).items())


def backend_library() -> Path:
    """llama.cpp's RPC backend for the installed package."""
    spec = importlib.util.spec_from_file_location("build_rpc_backend", _BUILD_SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path: Path = module.library_path()
    assert path.is_file(), f"cannot find {path}: scripts/test builds it, or scripts/build_rpc_backend.py"
    return path
