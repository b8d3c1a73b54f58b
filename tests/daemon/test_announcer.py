"""How loud the log is about what was decided."""

from __future__ import annotations

import logging

import pytest

from llamad.core.actions import Note
from llamad.core.scheduler import Scheduler
from llamad.daemon.announcer import Announcer
from llamad.daemon.driver import Driver
from llamad.daemon.gpus import Gpus
from llamad.daemon.loop import Loop
from llamad.daemon.systemd import Notifier
from tests.daemon.fake_machine import FakeNvml
from tests.daemon.parts import HandClock


@pytest.mark.parametrize(
    ("kind", "level"), [("failed", "WARNING"), ("no-gpu", "WARNING"), ("loaded", "INFO"), ("evict", "DEBUG")]
)
def test_what_went_wrong_is_a_warning(kind: str, level: str, caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop(HandClock())
    announcer = Announcer(loop, Driver(loop, Scheduler()), Notifier({}))
    with caplog.at_level(logging.DEBUG, "llamad"):
        announcer.note(Note(kind, "m", "what happened"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (level, "m: what happened")
    ]


def test_a_machine_without_a_gpu_is_nothing_to_be_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    nvml = FakeNvml()
    nvml.fails = "nvmlInit"
    with caplog.at_level(logging.INFO, "llamad"):
        Gpus({}, nvml).read(0.0)
    assert [record.levelname for record in caplog.records] == ["INFO"]
