"""llamad's public port answers in the form of llama.cpp's router, but for what is written down as intended."""

from __future__ import annotations

import json

import pytest

from tests.harness import Llamad
from tests.likeness.router import MODELS_MAX, RECORDED, ask_in_turn, presets
from tests.model.test_likeness import different, is_intended

pytestmark = pytest.mark.model


def test_answers_look_like_the_routers() -> None:
    recorded = json.loads(RECORDED.read_text())
    with Llamad(presets(), "--models-max", str(MODELS_MAX)) as daemon:
        unintended = [
            f"{case.name}: {line}"
            for case, ours in ask_in_turn(daemon.url)
            for line in different(ours, recorded[case.name])
            if not is_intended(case, line)
        ]
    assert not unintended, "\n".join(unintended)
