"""The command that runs worlds: its last line, its exit status, and that a failure can be seen again."""

from __future__ import annotations

import re

import pytest

from tests.sim import __main__ as command
from tests.sim import campaign
from tests.sim.campaign import Campaign
from tests.sim.promises import Broken, Promises


def test_the_last_line_sums_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--events", "2000", "--seed", "7"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.match(
        r"no promise broken: [\d,]+ events in \d+ worlds? \(seeds? 7.*\), [\d,]+ loads, .* events/s$", last
    )


def test_a_broken_promise_ends_the_run_with_its_seed_and_its_story(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(self: Promises, event: object) -> None:
        if self.w.steps == 30:
            raise Broken("seed 7, step 30: a promise for this test")

    monkeypatch.setattr(Promises, "after", breaks)
    assert command.main(["--events", "2000", "--seed", "7"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "Broken: seed 7, step 30: a promise for this test" in lines
    assert "again with: scripts/simulate --worlds 1 --seed 7" in lines
    assert lines[-1].startswith("BROKEN by seed 7: ")
    assert any(line.lstrip().startswith("30 ") for line in lines), "the last steps are shown"


def test_several_jobs_live_the_same_worlds() -> None:
    alone = Campaign(seed=50, events=1, worlds=4).run()
    together = Campaign(seed=50, events=1, worlds=4, jobs=2).run()
    assert (together.worlds, together.steps, together.seen) == (alone.worlds, alone.steps, alone.seen)


def test_time_may_end_a_run() -> None:
    totals = Campaign(seed=1, events=10**12, seconds=0.0).run()
    assert totals.worlds == 1


def test_totals_add_up() -> None:
    one, other = campaign.live(1), campaign.live(2)
    both = one + other
    assert (both.worlds, both.steps) == (2, one.steps + other.steps)
    assert both.longest_wait_s == max(one.longest_wait_s, other.longest_wait_s)
