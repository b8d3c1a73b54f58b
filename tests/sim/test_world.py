"""Random worlds: fixed seeds, the same for everybody, and fresh ones (SIM_SEEDS in the environment says how many)."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from llamad.core import events as e
from llamad.core.events import Limits, ModelEntry
from tests.sim.world import World, lives

ROOT = Path(__file__).resolve().parents[2]
FIXED = range(40)
FRESH = [secrets.randbelow(1 << 32) for _ in range(int(os.environ.get("SIM_SEEDS", "10")))]
CORNERS = (
    "Spawn",
    "Measure",
    "Sleep",
    "Wake",
    "ReadMemory",
    "AskExit",
    "Terminate",
    "Kill",
    "QueueLease",
    "GrantLease",
    "EndLease",
    "AnswerTicket",
    "announced",
    "detached",
    "eviction",
    "followed",
    "late news",
    "leap",
    "out of memory",
    "stalled",
    "note drain",
    "note drain-lifted",
    "note give-up",
    "note measure-dropped",
    "note measure-failed",
    "note overcommit",
    "note pin",
    "note retry",
    "note skip",
    "note slept",
    "note worker-lost",
    "refused all-pinned",
    "refused does-not-fit",
    "refused instance-died",
    "refused load-failed",
    "refused load-timeout",
    "refused model-not-found",
    "refused model-not-loaded",
    "refused out-of-memory",
    "refused queue-full",
    "refused queue-timeout",
    "refused stopping",
    "refused unloaded",
)


@pytest.mark.parametrize("seed", [*FIXED, *FRESH])
def test_a_random_world_keeps_every_promise(seed: int) -> None:
    lives(seed)


@pytest.mark.parametrize("seed", range(10))
def test_stopping_in_the_middle_of_everything_ends_everything(seed: int) -> None:
    world = World(seed)
    world.live(150)
    world.stop()


def test_the_worlds_reach_every_corner() -> None:
    """A simulator that never evicts, drains or fails proves nothing."""
    seen: Counter[str] = Counter()
    for seed in range(1000, 1060):
        seen += lives(seed, happenings=200).seen
        if all(seen[corner] for corner in CORNERS):
            return
    assert [corner for corner in CORNERS if not seen[corner]] == [], seen


@pytest.mark.parametrize("models_max", [1, 2])
def test_a_cold_model_waits_no_longer_than_drain_after_and_the_longest_request(models_max: int) -> None:
    world = World(3, chaos=0.0, models=models_max + 1)
    world.operators.limits = Limits(models_max=models_max, drain_after_s=30.0, queue_timeout_s=0.0)
    world.operators.entries = tuple(ModelEntry(name, fingerprint="0") for name in world.names)
    world.step(e.ModelsConfigured(world.operators.entries, world.operators.limits))
    *hot, cold = world.names
    for second in range(600):
        world.run_until(world.now + 1)
        for name in hot:
            world.clients.ask(name)
        if second % 100 == 50:
            world.clients.ask(cold)
    world.settle()
    request_s, exit_s, load_s = 90, 3, 30  # the longest of this world
    # one drain to get the room; or, asked in the middle of drains for the others, the others' turns first
    assert world.longest_wait_s() <= 30 + len(world.names) * (request_s + exit_s + load_s)


def test_one_seed_is_one_world_wherever_it_runs() -> None:
    """The order of a set or of a dictionary's hashes must never decide anything."""
    program = "from tests.sim.world import lives; print(*(lives(s, digests=True).transcript.digest() for s in (4, 5)))"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(number), "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for number in (1, 2)
    }
    assert len(digests) == 1
