"""Replaying a log of requests: the formats, and outcomes that can be worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llamad.core.events import Limits
from tests.sim import __main__ as command
from tests.sim.replay import Replay, Tally, outcome
from tests.sim.trace import Needs, Request, TraceError, made_up, read_needs, read_trace, write_trace

GIB = 1 << 30


def replayed(
    requests: list[Request], needs: Needs | None = None, devices: Any = None, **limits: Any
) -> Replay:
    run = Replay(Limits(**limits), {"*": needs or Needs(load_s=10, exit_s=1, duration_s=5)}, devices or {})
    run.run(requests)
    return run


def test_room_for_one_makes_the_second_wait_for_the_first_and_for_both_loads() -> None:
    run = replayed([Request(0, "a"), Request(1, "b")], models_max=1)
    assert run.tallies["a"].waits_s == [10.0]
    assert run.tallies["b"].waits_s == [10 + 5 + 1 + 10 - 1]
    assert (run.tallies["a"].loads, run.tallies["a"].evictions) == (1, 1)


def test_room_for_both_makes_nobody_leave() -> None:
    run = replayed([Request(0, "a"), Request(1, "b"), Request(30, "a")], models_max=2)
    assert run.tallies["a"].waits_s == [10.0, 0.0]
    assert run.tallies["a"].warm == 1
    assert sum(tally.evictions for tally in run.tallies.values()) == 0


def test_memory_limits_as_the_count_does() -> None:
    needs = Needs(need={"gpu": 9 * GIB}, load_s=10, exit_s=1, duration_s=5)
    requests = [Request(0, "a"), Request(1, "b"), Request(2, "c")]
    run = replayed(requests, needs, {"gpu": 24 * GIB}, models_max=0, margin_bytes=GIB)
    assert sum(tally.evictions for tally in run.tallies.values()) == 1
    assert run.peaks["gpu"] == 18 * GIB


def test_what_never_fits_is_refused_with_its_kind() -> None:
    needs = Needs(need={"gpu": 30 * GIB})
    run = replayed([Request(0, "a")], needs, {"gpu": 24 * GIB}, models_max=0, margin_bytes=0)
    assert run.tallies["a"].refusals == {"does-not-fit": 1}
    assert outcome(run)["total"]["refused"] == 1


def test_a_steady_client_is_drained_for_a_cold_model() -> None:
    steady = [Request(second, "a", 3.0) for second in range(200)]
    run = replayed(sorted([*steady, Request(20, "b", 1.0)]), models_max=1, drain_after_s=30)
    assert run.tallies["a"].drains == 1
    assert run.tallies["b"].waits_s[0] <= 30 + 3 + 1 + 10


def test_a_large_model_is_not_starved_by_small_ones_that_would_fit_into_each_gap() -> None:
    small = {f"small-{n}": Needs(need={"gpu": 6 * GIB}, load_s=2, exit_s=1) for n in range(8)}
    needs = {**small, "large": Needs(need={"gpu": 20 * GIB}, load_s=10, exit_s=1), "*": Needs()}
    steady = [Request(n * 0.5, f"small-{n * 3 % 8}", 8.0) for n in range(800)]
    run = Replay(Limits(models_max=0, margin_bytes=0, drain_after_s=30), needs, {"gpu": 24 * GIB})
    run.run(sorted([*steady, Request(100, "large", 5.0)]))
    (wait_s,) = run.tallies["large"].waits_s
    assert wait_s <= 30 + 8 * 8.0 + 8 * (2 + 1) + 10, "those ahead of it, then its own load"


def test_waits_by_share() -> None:
    tally = Tally(waits_s=[float(n) for n in range(1, 101)])
    assert (tally.wait_s(0.5), tally.wait_s(0.99), tally.wait_s(1.0)) == (50.0, 99.0, 100.0)
    assert Tally().wait_s(0.5) == 0.0


def test_csv_and_json_lines_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("time_s, model, duration_s\n12.5, b,\n10, a, 2\n")
    (tmp_path / "log.jsonl").write_text(
        '{"time": "2026-01-01T00:00:10+00:00", "model": "a", "duration_s": 2, "status": 200}\n\n'
        '{"time": "2026-01-01T00:00:12.500+00:00", "model": "b"}\n'
    )
    expected = [Request(0.0, "a", 2.0), Request(2.5, "b", None)]
    assert read_trace(tmp_path / "log.csv") == expected
    assert read_trace(tmp_path / "log.jsonl") == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("time_s,model\nsoon,a\n", "log:2: cannot read 'soon' as time_s"),
        ("time_s,model\n1,\n", "log:2: cannot find a model"),
        ("model\na\n", "log:2: cannot find time_s or time"),
        ('{"time": "yesterday", "model": "a"}\n', "log:1: cannot read 'yesterday' as a date and time"),
        ('{"time_s": 1, "model": "a"}\n[]\n', "log:2: cannot use '\\[\\]': not a JSON object"),
        ('{"time_s": 1\n', "log:1: cannot read this as JSON"),
        ("time_s,model\n", "it has no requests"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(TraceError, match=complaint):
        read_trace(tmp_path / "log")


def test_needs_fill_in_from_the_rest_and_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "needs").write_text(
        json.dumps({"*": {"load_s": 8}, "a": {"need": {"gpu": "1.5GiB"}, "slots": 4, "pinned": True}})
    )
    needs = read_needs(tmp_path / "needs", Needs(exit_s=3))
    assert needs["a"] == Needs(need={"gpu": 3 * GIB // 2}, load_s=8, exit_s=3, slots=4, pinned=True)
    assert needs["*"] == Needs(load_s=8, exit_s=3)


@pytest.mark.parametrize(
    "entry", [{"loads": 1}, {"need": {"gpu": "much"}}, {"pinned": 1}, {"load_s": "x"}, []]
)
def test_bad_needs_are_named(tmp_path: Path, entry: Any) -> None:
    (tmp_path / "needs").write_text(json.dumps({"a": entry}))
    with pytest.raises(TraceError, match="needs: a: cannot"):
        read_needs(tmp_path / "needs", Needs())


def test_a_made_up_log_is_read_back_as_it_was_made(tmp_path: Path) -> None:
    requests = made_up(50, 3, 600.0, seed=1)
    assert made_up(50, 3, 600.0, seed=1) == requests
    write_trace(tmp_path / "log.csv", requests)
    read = read_trace(tmp_path / "log.csv")
    assert [x.model for x in read] == [x.model for x in requests]
    assert read[0].time_s == 0.0


def test_the_command_compares_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(tmp_path / "log.csv")
    assert command.main(["--make-trace", log, "--requests", "60", "--models", "3", "--seed", "1"]) == 0
    assert command.main(["--trace", log, "--models-max", "1,3", "--json"]) == 0
    one, three = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert one["total"]["requests"] == three["total"]["requests"] == 60
    assert one["total"]["loads"] > three["total"]["loads"] == 3
    assert command.main(["--trace", log, "--models-max", "2"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[0] == "model"
    assert table[-1].split()[0] == "all"


def test_the_command_names_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--trace", str(tmp_path / "none")]) == 2
    assert "cannot read" in capsys.readouterr().err
