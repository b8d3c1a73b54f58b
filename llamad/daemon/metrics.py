"""`/metrics`: one page in Prometheus's text format, of values that are there already. Reading it changes nothing.

Every series about a model has the label `model`. Counters are of `tallies`: they do not fall when a process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from llamad import __version__
from llamad.core.view import ModelView, SchedulerView
from llamad.daemon.monitor import Instance
from llamad.daemon.tallies import COUNTERS, DECISIONS, Tallies, Tally

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_DEVICE_FIELDS = {
    "total": "Memory of the device.",
    "external": "Memory that other programs hold.",
    "held": "Memory that models hold, or were promised.",
    "margin": "Memory that is kept free.",
    "available": "Memory that may still be promised.",
}
_COUNTER_HELP = {
    "steps": "Decode calls.",
    "prompt_tokens": "Prompt tokens that were evaluated.",
    "cached_tokens": "Prompt tokens that were found in a cache.",
    "predicted_tokens": "Generated tokens.",
    "requests_done": "Requests that came to their end.",
    "requests_cancelled": "Requests that were given up by their clients.",
    "requests_failed": "Requests that failed in an instance.",
    "drafts": "Times that speculation drafted how a sequence goes on.",
    "drafted_tokens": "Drafted tokens that were evaluated.",
    "accepted_tokens": "Drafted tokens that came true.",
}
_DECISION_HELP = {
    "loads": "Processes started.",
    "wakes": "Times a sleeping process was woken.",
    "evictions": "Times it was unloaded to make room for another model.",
    "failures": "Loads that failed and processes that died unasked.",
    "sleeps": "Times it was put to sleep.",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the page shows, all of one moment."""

    view: SchedulerView
    instances: tuple[Instance, ...]
    tallies: Tallies
    uptime_s: float


def page(snapshot: Snapshot) -> bytes:
    """The whole page."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(_metrics(snapshot)))
    return generate_latest(registry)


class _Once(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _metrics(snapshot: Snapshot) -> Iterator[Metric]:
    view = snapshot.view
    build = GaugeMetricFamily("llamad_build_info", "Version.", labels=["version"])
    build.add_metric([__version__], 1)
    yield build
    yield GaugeMetricFamily("llamad_uptime_seconds", "Since the start.", value=snapshot.uptime_s)
    yield GaugeMetricFamily("llamad_queue_models", "Models that wait for room.", value=len(view.queue))
    waiting = sum(model.waiting for model in view.models)
    yield GaugeMetricFamily("llamad_queue_requests", "Requests that wait for a model.", value=waiting)
    yield GaugeMetricFamily("llamad_processes", "Instances that hold room.", value=view.residents)
    yield from _devices(view)
    yield from _states(view)
    yield from _models(view, snapshot.instances)
    yield from _totals(view, snapshot.tallies)


def _devices(view: SchedulerView) -> Iterator[Metric]:
    for name, text in _DEVICE_FIELDS.items():
        family = GaugeMetricFamily(f"llamad_device_{name}_bytes", text, labels=["device"])
        for device in view.devices:
            family.add_metric([device.name], getattr(device, name))
        yield family


def _states(view: SchedulerView) -> Iterator[Metric]:
    state = GaugeMetricFamily("llamad_model_state", "1 for the state it is in.", labels=["model", "state"])
    count = GaugeMetricFamily("llamad_models", "Models by state.", labels=["state"])
    found: dict[str, int] = {}
    for model in view.models:
        state.add_metric([model.name, model.state], 1)
        found[model.state] = found.get(model.state, 0) + 1
    for word, number in sorted(found.items()):
        count.add_metric([word], number)
    yield state
    yield count


def _models(view: SchedulerView, instances: tuple[Instance, ...]) -> Iterator[Metric]:
    by_child = {instance.child: instance for instance in instances}
    yield _of_models("failed", "1 while its last load or process has failed.", view, lambda m: int(m.failed))
    yield _of_models("leases", "Requests that it works on.", view, lambda m: m.leases)
    yield _of_models("waiting", "Requests that wait for it.", view, lambda m: m.waiting)
    yield _of_models("pinned", "1 while it is never unloaded to make room.", view, lambda m: int(m.pinned))
    busy = GaugeMetricFamily("llamad_model_slots_busy", "Slots in use.", labels=["model"])
    held = GaugeMetricFamily("llamad_model_held_bytes", "Memory on its account.", labels=["model", "device"])
    for model in view.models:
        instance = by_child.get(model.child)
        if instance is not None and type(instance.stats.get("slots_busy")) is int:
            busy.add_metric([model.name], instance.stats["slots_busy"])
        for device, amount in model.held.items():
            held.add_metric([model.name, device], amount)
    yield busy
    yield held


def _of_models(name: str, text: str, view: SchedulerView, value: Callable[[ModelView], int]) -> Metric:
    family = GaugeMetricFamily(f"llamad_model_{name}", text, labels=["model"])
    for model in view.models:
        family.add_metric([model.name], value(model))
    return family


def _totals(view: SchedulerView, tallies: Tallies) -> Iterator[Metric]:
    kinds: list[tuple[str, str, Callable[[Tally], int]]] = [
        *((name, _DECISION_HELP[name], lambda t, n=name: t.decisions[n]) for name in DECISIONS.values()),
        *((name, _COUNTER_HELP[name], lambda t, n=name: t.counters[n]) for name in COUNTERS),
    ]
    for name, text, value in kinds:
        family = CounterMetricFamily(f"llamad_model_{name}", text, labels=["model"])
        for model in view.models:
            family.add_metric([model.name], value(tallies.of(model.name)))
        yield family
