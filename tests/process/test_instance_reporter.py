"""When counters are worth a line: changes, and the heartbeat of a busy instance."""

from __future__ import annotations

import dataclasses
import itertools

from llamad.child.reporter import STATS_EVERY_S, Pulse
from llamad.engine.vocabulary import EngineStats
from llamad.wire.child import HEARTBEAT_S

IDLE = EngineStats(*(0 for _ in dataclasses.fields(EngineStats)))
BUSY = dataclasses.replace(IDLE, steps=7, slots_busy=1)
QUEUED = dataclasses.replace(IDLE, steps=7, queued=1)


def beats(stats: EngineStats, pulse: Pulse, begin_s: float, end_s: float) -> list[float]:
    """When a line goes out while `stats` stand still."""
    times = [begin_s + STATS_EVERY_S * n for n in range(int((end_s - begin_s) / STATS_EVERY_S))]
    return [now for now in times if pulse.beats(stats, now)]


def test_an_idle_instance_speaks_once() -> None:
    assert beats(IDLE, Pulse(), 100.0, 200.0) == [100.0]


def test_a_busy_instance_speaks_in_time_though_nothing_moves() -> None:
    for stats in (BUSY, QUEUED):
        times = beats(stats, Pulse(), 100.0, 200.0)
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        # The loop may be late by a round.
        assert max(gaps) <= HEARTBEAT_S - STATS_EVERY_S
        assert min(gaps) > STATS_EVERY_S


def test_a_change_is_told_at_once() -> None:
    pulse = Pulse()
    assert pulse.beats(IDLE, 0.0)
    assert pulse.beats(BUSY, 1.0)
    assert pulse.beats(dataclasses.replace(BUSY, steps=8), 2.0)
    assert pulse.beats(IDLE, 3.0)
    assert not pulse.beats(IDLE, 30.0)
