"""What is counted, and the page of it, as a reader of Prometheus's format sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from llamad.config.settings import ModelSpec
from llamad.core.actions import Note
from llamad.core.view import DeviceView, SchedulerView
from llamad.daemon.decisions import KEPT_MAX, Decisions
from llamad.daemon.metrics import Snapshot, page
from llamad.daemon.monitor import Instance
from llamad.daemon.tallies import Tallies
from tests.daemon.parts import HandClock
from tests.daemon.test_documents import VIEW

ODD = 'we"ird\\name\n/ä:1'


def instance(name: str = "m", child: int = 1) -> Instance:
    return Instance(child, ModelSpec(name, "/m.gguf"), "t", "")


def heard(tallies: Tallies, which: Instance, **stats: Any) -> None:
    """As the monitor tells it."""
    tallies.counted(which, stats)
    which.stats = stats


def samples(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    """(name, label values in their order) to value; parsing fails on a page that is not well-formed."""
    families = text_string_to_metric_families(page(snapshot).decode())
    return {
        (sample.name, *[sample.labels[key] for key in sorted(sample.labels)]): sample.value
        for family in families
        for sample in family.samples
    }


def view(*models: Any, **fields: Any) -> SchedulerView:
    return SchedulerView(tuple(models), (), residents=1, models_max=4, stopping=False, **fields)


def test_counters_go_on_when_a_process_is_replaced() -> None:
    tallies, first = Tallies(), instance()
    heard(tallies, first, predicted_tokens=10, prompt_tokens=3)
    heard(tallies, first, predicted_tokens=15, prompt_tokens=3)
    heard(tallies, instance(child=2), predicted_tokens=4)
    assert tallies.of("m").counters["predicted_tokens"] == 19
    assert tallies.of("m").counters["prompt_tokens"] == 3


def test_an_engine_that_begins_anew_after_sleep_does_not_take_anything_away() -> None:
    tallies, one = Tallies(), instance()
    heard(tallies, one, predicted_tokens=10)
    heard(tallies, one, predicted_tokens=2)
    heard(tallies, one, predicted_tokens="nonsense")
    assert tallies.of("m").counters["predicted_tokens"] == 12


def test_decisions_are_counted_and_models_that_are_gone_forgotten() -> None:
    tallies = Tallies()
    for kind in ("load", "load", "evict", "failed", "drain", "wake"):
        tallies.note(Note(kind, "m", "x"))
    tallies.note(Note("load", "other", "x"))
    assert tallies.of("m").decisions == {"loads": 2, "wakes": 1, "evictions": 1, "failures": 1, "sleeps": 0}
    tallies.keep({"m"})
    assert tallies.of("other").decisions["loads"] == 0


def test_the_page() -> None:
    tallies, runs = Tallies(), instance(child=3)
    heard(tallies, runs, slots_busy=2, predicted_tokens=7)
    tallies.note(Note("load", "m", "x"))
    loaded = replace(VIEW, state="loaded", child=3, leases=2, held={"host": 5, "CUDA0": 6})
    asleep = replace(VIEW, name="s", state="sleeping", child=4, waiting=1, pinned=True)
    failed = replace(VIEW, name=ODD, failed=True)
    device = DeviceView("CUDA0", 100, 10, 6, 5, 79)
    found = samples(Snapshot(view(loaded, asleep, failed, devices=(device,)), (runs,), tallies, 12.5))
    assert found["llamad_uptime_seconds",] == 12.5
    assert found["llamad_queue_requests",] == 1
    assert found["llamad_models", "unloaded"] == 1
    assert found["llamad_model_state", "m", "loaded"] == found["llamad_model_state", "s", "sleeping"] == 1
    assert (found["llamad_model_failed", ODD], found["llamad_model_failed", "m"]) == (1, 0)
    assert found["llamad_model_leases", "m"] == found["llamad_model_slots_busy", "m"] == 2
    assert found["llamad_model_pinned", "s"] == 1
    assert (
        found["llamad_model_held_bytes", "CUDA0", "m"],
        found["llamad_model_held_bytes", "host", "m"],
    ) == (6, 5)
    assert [found[f"llamad_device_{name}_bytes", "CUDA0"] for name in ("total", "external", "held", "margin", "available")] == [100, 10, 6, 5, 79]  # fmt: skip
    assert found["llamad_model_loads_total", "m"] == 1
    assert found["llamad_model_predicted_tokens_total", "m"] == 7
    assert found["llamad_model_predicted_tokens_total", "s"] == 0


def test_the_last_decisions_about_a_model_are_kept_though_others_are_busy() -> None:
    clock = HandClock()
    decisions = Decisions(clock)
    decisions.note(Note("load", "quiet", "loading", {"child": 1, "kind": "hidden", "time": 0}))
    clock.now += 5
    for number in range(KEPT_MAX + 5):
        decisions.note(Note("load", "busy", str(number)))
    decisions.note(Note("ready", "", "about no model"))
    (only,) = decisions.documents("quiet")
    assert only == {"time": clock.wall() - 5, "ago_s": 5.0, "kind": "load", "text": "loading", "child": 1}
    busy = decisions.documents("busy")
    assert [document["text"] for document in busy] == [str(n) for n in range(KEPT_MAX + 4, 4, -1)]
    decisions.keep({"busy"})
    assert decisions.documents("quiet") == []
