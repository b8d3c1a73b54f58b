"""Admission by measured memory on a device that really ends: a real llamad, real models, the device's own count."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.conftest import wait_until
from tests.harness import Document, Llamad, UnixConnection
from tests.model.rpc_device import MIB, NAME, RpcDevice

pytestmark = pytest.mark.model

TOLERANCE = 0.03
GIVEN_BACK_WITHIN_S = 3.0
"""From an end to the load that has waited for it: the books wait for a device to show it, for 2 s at most."""
MARGIN_MIB = 16
ONE_MIB = 121
"""A little more than SmolLM2 takes with 512 tokens and all its layers on the device (116 MiB)."""
ROOM_FOR_ONE_MIB = MARGIN_MIB + ONE_MIB + 60
ROOM_FOR_TWO_MIB = MARGIN_MIB + 2 * ONE_MIB + 20


@contextmanager
def serving(
    path: Path, total_mib: int, models: str, lines: str = "c = 512\n"
) -> Iterator[tuple[Llamad, RpcDevice]]:
    """A llamad that keeps books, with `models` that are all the same file, all layers on one device."""
    sections = "".join(f"[{name}]\nmodel = {path}\n" for name in models.split())
    with RpcDevice(total_mib * MIB) as device:
        presets = f"version = 1\n[*]\nngl = 99\nnp = 1\n{lines}{device.preset}\n{sections}"
        with Llamad(presets, "--models-memory-margin", str(MARGIN_MIB)) as daemon:
            yield daemon, device
        device.wait_held(lambda held: held == 0)


def ask(daemon: Llamad, model: str) -> requests.Response:
    return daemon.post("/completion", {"model": model, "prompt": "Hello", "n_predict": 2})


def asked(daemon: Llamad, model: str) -> Document:
    answer = ask(daemon, model)
    assert answer.status_code == 200, f"{answer.text}\n{daemon.log_tail()}"
    document: Document = answer.json()
    return document


def decisions(daemon: Llamad) -> list[Document]:
    """All that was decided so far, the first first."""
    connection = UnixConnection(daemon.folder / "run" / "admin.sock", 10)
    try:
        connection.request("GET", "/events?n=1000")
        return [json.loads(line) for line in connection.getresponse().read().splitlines()]
    finally:
        connection.close()


def kinds(daemon: Llamad, model: str) -> list[str]:
    return [decision["kind"] for decision in decisions(daemon) if decision["model"] == model]


def when(daemon: Llamad, model: str, kind: str) -> float:
    """The moment of the last decision of this kind."""
    return max(d["time"] for d in decisions(daemon) if (d["model"], d["kind"]) == (model, kind))


def books(daemon: Llamad) -> Document:
    """What `status` says of the device."""
    devices = {device["name"]: device for device in daemon.admin("GET", "/status")["devices"]}
    document: Document = devices[NAME]
    return document


class Samples:
    """The device's books again and again, while it is entered."""

    def __init__(self, daemon: Llamad) -> None:
        self.books: list[Document] = []
        self._daemon = daemon
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Samples:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            devices = self._daemon.admin("GET", "/status")["devices"]
            self.books += [device for device in devices if device["name"] == NAME]


def test_room_for_one_of_two(smollm2: Path) -> None:
    """Two clients want two models by turns: all are answered, and never is more taken or promised than there is."""
    with serving(smollm2, ROOM_FOR_ONE_MIB, "a b") as (daemon, device):
        with Samples(daemon) as samples, ThreadPoolExecutor(2) as clients:
            turns = [clients.submit(lambda order: [ask(daemon, m) for m in order], o) for o in ("aba", "bab")]
            answers = [answer for turn in turns for answer in turn.result()]
        assert [answer.status_code for answer in answers] == [200] * 6
        assert device.refused_bytes == []
        assert device.peak_bytes <= (ROOM_FOR_ONE_MIB - MARGIN_MIB) * MIB
        made_room = [d for d in decisions(daemon) if "to make room for" in d["text"]]
        assert {decision["model"] for decision in made_room} == {"a", "b"}
        assert samples.books
        for sample in samples.books:
            assert sample["total_bytes"] == device.total_bytes
            assert sample["held_bytes"] + sample["margin_bytes"] <= sample["total_bytes"]
        assert books(daemon)["held_bytes"] == pytest.approx(device.held_bytes, rel=TOLERANCE)


def test_the_least_recently_used_of_two_leaves_for_a_third(smollm2: Path) -> None:
    with serving(smollm2, ROOM_FOR_TWO_MIB, "a b c") as (daemon, device):
        for model in "abac":
            asked(daemon, model)
            # The front keeps a lease a moment longer than its request; in that moment uses have no order.
            wait_until(lambda name=model: daemon.model(name)["llamad"]["leases"] == 0)
        assert [daemon.state(model) for model in "abc"] == ["loaded", "unloaded", "loaded"]
        assert books(daemon)["held_bytes"] == pytest.approx(device.held_bytes, rel=TOLERANCE)
        assert device.refused_bytes == []


def test_a_killed_process_gives_its_memory_back_at_once(smollm2: Path) -> None:
    with serving(smollm2, ROOM_FOR_ONE_MIB, "a b") as (daemon, device):
        asked(daemon, "a")
        asked(daemon, "b")
        (process,) = daemon.ps("instance")
        os.kill(process["pid"], signal.SIGKILL)
        asked(daemon, "a")
        assert device.refused_bytes == []
        assert books(daemon)["held_bytes"] == pytest.approx(device.held_bytes, rel=TOLERANCE)
        assert when(daemon, "a", "load") - when(daemon, "b", "exited") < GIVEN_BACK_WITHIN_S
        (process,) = daemon.ps("instance")
        os.kill(process["pid"], signal.SIGKILL)
        device.wait_held(lambda held: held == 0)
        wait_until(lambda: books(daemon)["held_bytes"] == 0)


def test_what_was_measured_before_a_restart_is_on_the_books_from_the_first_load_on(smollm2: Path) -> None:
    """Nobody measures again, so nothing but what was kept tells of the device; and both are wanted at once."""
    with serving(smollm2, ROOM_FOR_ONE_MIB, "a b") as (daemon, device):
        asked(daemon, "a")
        daemon.stop()
        device.wait_held(lambda held: held == 0)
        daemon.start()
        with ThreadPoolExecutor(2) as clients:
            answers = list(clients.map(lambda model: ask(daemon, model), "ab"))
        assert [answer.status_code for answer in answers] == [200, 200]
        assert device.refused_bytes == []
        assert device.peak_bytes <= (ROOM_FOR_ONE_MIB - MARGIN_MIB) * MIB


def test_too_large_for_the_device_is_refused_with_the_numbers(smollm2: Path) -> None:
    with serving(smollm2, ROOM_FOR_ONE_MIB, "a", "c = 8192\n") as (daemon, device):
        answer = ask(daemon, "a")
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        error = answer.json()["error"]
        assert error["kind"] == "does-not-fit"
        assert f"needed on {NAME}" in error["message"]
        assert error["devices"][NAME]["need"] > device.total_bytes > error["devices"][NAME]["available"]
        assert device.peak_bytes == 0


def test_an_open_context_becomes_what_the_device_has_room_for(smollm2: Path) -> None:
    with serving(smollm2, ROOM_FOR_ONE_MIB, "a", "fit-ctx = 512\n") as (daemon, device):
        asked(daemon, "a")
        n_ctx = requests.get(f"{daemon.url}/props?model=a", timeout=10).json()["default_generation_settings"][
            "n_ctx"
        ]
        assert 512 < n_ctx < 8192
        assert device.refused_bytes == []
        assert ONE_MIB * MIB < device.held_bytes <= (ROOM_FOR_ONE_MIB - MARGIN_MIB) * MIB
        assert books(daemon)["held_bytes"] == pytest.approx(device.held_bytes, rel=TOLERANCE)


def test_out_of_memory_at_load(smollm2: Path) -> None:
    """The device has less than it says: one more model leaves, and there is one more try."""
    with serving(smollm2, ROOM_FOR_TWO_MIB, "a b") as (daemon, device):
        asked(daemon, "a")
        device.hide(80 * MIB)
        asked(daemon, "b")
        assert len(device.refused_bytes) == 1
        assert "retry" in kinds(daemon, "b")
        assert daemon.state("a") == "unloaded"
        device.hide((ROOM_FOR_TWO_MIB - ONE_MIB // 2) * MIB)
        answer = ask(daemon, "a")
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        error = answer.json()["error"]
        assert error["kind"] == "out-of-memory"
        assert f"failed to allocate {NAME}" in error["message"]
        assert len(device.refused_bytes) == 3, "one try, and one more"
        assert daemon.state("b") == "unloaded"


def test_sleep_gives_the_memory_back(smollm2: Path) -> None:
    lines = "c = 512\nsleep-idle-seconds = 1\n"
    with serving(smollm2, ROOM_FOR_ONE_MIB, "a b", lines) as (daemon, device):
        asked(daemon, "a")
        daemon.wait_state("a", "sleeping", 20)
        assert device.held_bytes == 0
        wait_until(lambda: books(daemon)["held_bytes"] == 0)
        asked(daemon, "a")
        assert device.held_bytes == pytest.approx(books(daemon)["held_bytes"], rel=TOLERANCE)
        daemon.wait_state("a", "sleeping", 20)
        wait_until(lambda: books(daemon)["held_bytes"] == 0)
        asked(daemon, "b")
        assert daemon.state("a") == "sleeping", "it was not in the way"
        assert device.refused_bytes == []
