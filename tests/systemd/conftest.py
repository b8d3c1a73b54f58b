"""One box for all tests of this folder: a real systemd in its own namespaces, with llamad installed by scripts/install.

The box sees a throw-away copy of this machine's root, the checkout, the installed environment at /opt/llamad and the
demo model, all read-only, and has no network but its own loopback. See `sdbox` beside this file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
SDBOX = HERE / "sdbox"
BOOT_WITHIN_S = 60
BUILD_WITHIN_S = 1800
ADMIN = "http://llamad"
PORT = 8080
URL = f"http://127.0.0.1:{PORT}"


class Box:
    """A booted systemd. Commands run inside as root unless told otherwise."""

    def __init__(self, *binds: str) -> None:
        self.name = f"llamad-{uuid.uuid4().hex[:8]}"
        self._sdbox(
            "start", self.name, *[part for bind in binds for part in ("-b", bind)], timeout_s=BOOT_WITHIN_S
        )
        self.root = Path(self._sdbox("root", self.name).stdout.strip())

    def run(
        self, *command: str, check: bool = True, timeout_s: float = 90
    ) -> subprocess.CompletedProcess[str]:
        done = self._sdbox("exec", self.name, *command, check=False, timeout_s=timeout_s)
        assert not check or done.returncode == 0, (
            f"{command}: exit status {done.returncode}\n{done.stdout}{done.stderr}\n{self.journal()}"
        )
        return done

    def run_as(self, user: str, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("setpriv", "--reuid", user, "--regid", user, "--init-groups", *command, check=check)

    @property
    def exec_prefix(self) -> list[str]:
        """What to put before a command that is to run inside, for those who want to read its output as it comes."""
        return [str(SDBOX), "exec", self.name]

    def write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def show(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", unit, "--property", name, "--value").stdout.strip()

    def journal(self, *arguments: str) -> str:
        done = self._sdbox("journal", self.name, "-n", "80", "-o", "cat", *arguments, check=False)
        return done.stdout

    def stop(self) -> None:
        self._sdbox("stop", self.name, timeout_s=BOOT_WITHIN_S)

    @staticmethod
    def _sdbox(
        *arguments: str, check: bool = True, timeout_s: float = 30
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [SDBOX, *arguments],
            text=True,
            capture_output=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert not check or done.returncode == 0, f"sdbox {arguments}: {done.stdout}{done.stderr}"
        return done


class Service:
    """llamad in a box: its unit, its port, its admin socket, its processes."""

    def __init__(self, box: Box) -> None:
        self.box = box

    def systemctl(
        self, verb: str, unit: str = "llamad.service", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        return self.box.run("systemctl", verb, unit, check=check)

    @property
    def state(self) -> str:
        return self.box.show("llamad.service", "ActiveState")

    @property
    def main_pid(self) -> int:
        return int(self.box.show("llamad.service", "MainPID"))

    def processes(self) -> list[str]:
        """`pid user command` of every process of the user llamad."""
        listing = self.box.run("ps", "-o", "pid=,user=,args=", "-u", "llamad", check=False).stdout
        return listing.splitlines()

    def admin(self, path: str) -> Any:
        done = self.box.run("curl", "-sS", "--unix-socket", "/run/llamad/admin.sock", ADMIN + path)
        return json.loads(done.stdout)

    def models(self) -> dict[str, Any]:
        return {model["id"]: model for model in self.admin("/models")["data"]}

    def post(self, path: str, body: dict[str, Any]) -> str:
        header = "Content-Type: application/json"
        done = self.box.run(
            "curl", "-sS", "-N", URL + path, "-H", header, "-d", json.dumps(body), check=False
        )
        assert done.returncode == 0, f"curl: {done.stderr}\n{self.box.journal('-u', 'llamad')}"
        return done.stdout

    def chat(self, model: str, **fields: Any) -> Any:
        messages = [{"role": "user", "content": "Say hello."}]
        return json.loads(
            self.post(
                "/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": 8, **fields}
            )
        )

    def reset(self) -> None:
        """Stopped, with the presets and switches of a fresh installation."""
        self.box.run("systemctl", "stop", "llamad.socket", "llamad.service")
        self.box.run("systemctl", "reset-failed", check=False)
        self.write_presets()

    def write_presets(self, more: str = "") -> None:
        self.box.write("/etc/llamad/models.ini", f"version = 1\n\n{preset('smol')}\n{more}")


def preset(name: str) -> str:
    return f"[{name}]\nmodel = /srv/models/smollm2.gguf\nc = 2048\nnp = 2\n"


@pytest.fixture(scope="session")
def box(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    assert os.geteuid() == 0, (
        "these tests need root; pytest -m 'not systemd' (scripts/test --no-systemd) leaves them out"
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llamad"
    venv = cache / "box"
    # A copy, so that what is installed and what the box sees are the same even while somebody edits the checkout.
    checkout = tmp_path_factory.mktemp("box") / "llamad"
    shutil.copytree(CHECKOUT, checkout, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info"))
    done = subprocess.run(
        [checkout / "tests/systemd/box-venv", venv],
        text=True,
        capture_output=True,
        timeout=BUILD_WITHIN_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, f"cannot make the environment of the box: {done.stdout}{done.stderr}"
    box = Box(f"{checkout}:/srv/llamad", f"{venv}:/opt/llamad", f"{smollm2}:/srv/models/smollm2.gguf")
    try:
        box.run("/srv/llamad/scripts/install")
        yield box
    finally:
        box.stop()


@pytest.fixture
def service(box: Box) -> Iterator[Service]:
    """Stopped; after the test it is stopped again and nothing of it may be left."""
    service = Service(box)
    service.reset()
    yield service
    service.reset()
    wait_until(lambda: not service.processes(), within_s=5)
