"""Fixtures for every folder: where the real models are, and waiting without sleeping blindly."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest

T = TypeVar("T")

# A shell without job control starts what it sends to the background with SIGINT ignored, and every process that a test
# starts inherits that: Ctrl-C would then do nothing to it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example that takes long says that the machine is busy, and nothing else.
hypothesis.settings.register_profile("llamad", deadline=None)
hypothesis.settings.load_profile("llamad")

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = "gemma-3-270m-Q4_K_M.gguf"


def wait_until(condition: Callable[[], T], within_s: float = 10.0, every_s: float = 0.02) -> T:
    """The first truthy value of `condition`, or a failure after `within_s` seconds that names the last value."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"nothing true within {within_s} s, last value {value!r}")
        time.sleep(every_s)


def _model(name: str) -> Path:
    folder = Path(os.environ.get("LLAMAD_TEST_MODELS") or Path.home() / ".cache/llamad/models")
    path = folder / name
    assert path.is_file(), f"cannot find {path}: scripts/test fetches the models, or set LLAMAD_TEST_MODELS"
    return path


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct: llama architecture, 49k vocabulary, ChatML template, 8k context."""
    return _model(SMOLLM2)


@pytest.fixture(scope="session")
def gemma() -> Path:
    """Gemma 3 270M base: sliding window, 262k vocabulary, no chat template, 32k context."""
    return _model(GEMMA)
