"""Random worlds: fixed seeds, the same for everybody, and fresh ones (SIM_SEEDS in the environment says how many)."""

from __future__ import annotations

import os
import secrets

import pytest

from llamad.core import events as e
from tests.sim.world import World

FIXED = range(60)
FRESH = [secrets.randbelow(1 << 32) for _ in range(int(os.environ.get("SIM_SEEDS", "10")))]


@pytest.mark.parametrize("seed", [*FIXED, *FRESH])
def test_a_random_world_keeps_every_promise(seed: int) -> None:
    world = World(seed)
    world.live(400)
    world.settle()
    world.stop()


@pytest.mark.parametrize("seed", range(10))
def test_stopping_in_the_middle_of_everything_ends_everything(seed: int) -> None:
    world = World(seed)
    world.live(150)
    world.stop()


def test_the_worlds_reach_every_corner() -> None:
    """A simulator that never evicts, drains or fails proves nothing."""
    seen = World(0).seen
    for seed in range(40):
        world = World(seed)
        world.live(300)
        world.settle()
        seen += world.seen
    for corner in (
        "Spawn",
        "Measure",
        "Sleep",
        "Wake",
        "ReadMemory",
        "out of memory",
        "note retry",
        "note measure-failed",
        "note slept",
        "note give-up",
        "refused does-not-fit",
        "AskExit",
        "Terminate",
        "Kill",
        "QueueLease",
        "GrantLease",
        "EndLease",
        "AnswerTicket",
        "note drain",
        "note drain-lifted",
        "note skip",
        "note worker-lost",
        "refused all-pinned",
        "refused queue-full",
        "refused queue-timeout",
        "refused load-failed",
        "refused model-not-found",
        "refused model-not-loaded",
    ):
        assert seen[corner] > 0, f"no world ever saw {corner!r}: {seen}"


@pytest.mark.parametrize("seed", range(5))
def test_a_cold_model_waits_no_longer_than_drain_after_and_the_longest_request(seed: int) -> None:
    world = World(seed, chaos=0.0)
    world.limits = type(world.limits)(models_max=1, drain_after_s=30.0, queue_timeout_s=0.0)
    world.entries = tuple(type(entry)(entry.name, fingerprint="x") for entry in world.entries[:2])
    world.step(e.ModelsConfigured(world.entries, world.limits))
    hot, cold = (entry.name for entry in world.entries)
    for second in range(600):
        world.run_until(world.now + 1)
        world.ask(hot)
        if second % 100 == 50:
            world.ask(cold)
    world.run_until(world.now + 500)
    request_s, exit_s, load_s = 90, 3, 30  # the longest of this world
    # one drain to get the room; or, asked in the middle of a drain for the other, the other's turn first
    assert world.longest_wait_s() <= 30 + 2 * (request_s + exit_s + load_s)
    assert all(lease.answered for lease in world.leases.values())
