"""llamactl top: rates from two looks at the same processes."""

from __future__ import annotations

import json
from typing import Any

from llamad.cli.commands.top import HEADINGS, with_rates
from tests.cli.conftest import Run
from tests.cli.fake_daemon import FakeDaemon


def process(pid: int, cpu_s: float, **stats: int) -> dict[str, Any]:
    return {"pid": pid, "role": "instance", "model": "m", "state": "ready", "cpu_s": cpu_s, "stats": stats}


def test_rates_are_differences_over_time_and_the_busiest_comes_first() -> None:
    before = [process(1, 1.0, predicted_tokens=10), process(2, 5.0, predicted_tokens=0, prompt_tokens=7)]
    after = [process(1, 1.5, predicted_tokens=20), process(2, 9.0, predicted_tokens=8, prompt_tokens=7)]
    busy, other = with_rates(before, after, 2.0)
    assert busy["rates"] == {"cpu": 2.0, "prompt_tokens": 0.0, "predicted_tokens": 4.0}
    assert other["rates"] == {"cpu": 0.25, "prompt_tokens": None, "predicted_tokens": 5.0}


def test_a_new_process_and_one_that_counts_anew_have_no_rate() -> None:
    before = [process(1, 2.0, predicted_tokens=10)]
    after = [process(1, 0.1, predicted_tokens=3), process(2, 4.0, predicted_tokens=3)]
    for row in with_rates(before, after, 1.0):
        assert set(row["rates"].values()) == {None}
    assert with_rates(after, after, 0.0)[0]["rates"]["cpu"] is None


def test_tables_and_lines(daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.processes = [process(4720, 12.5, slots_busy=1, queued=0, prompt_tokens=30, predicted_tokens=812)]
    result = llamactl("top", "--every", "100ms", "-n", "2")
    assert (result.returncode, result.stderr) == (0, "")
    heading, row, *again = result.stdout.splitlines()
    assert heading.split() == list(HEADINGS)
    assert row.split() == ["4720", "instance", "m", "ready", "-", "0%", "1", "0", "0.0", "0.0"]
    assert again == [heading, row]
    result = llamactl("top", "--every", "100ms", "-n", "2", "--json")
    first, _ = map(json.loads, result.stdout.splitlines())
    assert first["processes"][0]["rates"] == {"cpu": 0.0, "prompt_tokens": 0.0, "predicted_tokens": 0.0}
