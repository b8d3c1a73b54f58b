"""`scripts/simulate --trace`: options, tables, JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llamad.core.events import Limits
from llamad.units import MIB, format_bytes, parse_bytes
from tests.sim import trace
from tests.sim.replay import Replay, outcome
from tests.sim.trace import MODEL_REST, Needs, TraceError

COLUMNS = (
    "requests",
    "warm",
    "loads",
    "evictions",
    "drains",
    "refused",
    "wait_p50_s",
    "wait_p99_s",
    "wait_max_s",
)
HEADS = ("requests", "at once", "loads", "evicted", "drained", "refused", "wait p50", "p99", "max")


def add_options(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("replaying a log of requests", trace.__doc__)
    group.add_argument(
        "--trace", type=Path, metavar="FILE", help="the log; prints loads, evictions, waits by model"
    )
    group.add_argument(
        "--models-max",
        default="4",
        metavar="N[,N]",
        help="models loaded at once, 0: any number; several to compare",
    )
    group.add_argument(
        "--margin", type=float, metavar="MiB", help="memory kept free on each device: books memory"
    )
    group.add_argument(
        "--device",
        type=_amount,
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="CUDA0=24GiB, host=64GiB, …",
    )
    group.add_argument("--needs", type=Path, metavar="FILE", help="what models need, as JSON")
    group.add_argument(
        "--need",
        type=_amount,
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="for models not in --needs",
    )
    group.add_argument(
        "--load-s", type=float, default=10.0, help="how long a load takes, likewise (%(default)s)"
    )
    group.add_argument("--duration-s", type=float, default=5.0, help="how long a request takes (%(default)s)")
    group.add_argument("--drain-after", type=float, default=Limits().drain_after_s, metavar="S")
    group.add_argument("--queue-timeout", type=float, default=Limits().queue_timeout_s, metavar="S")
    group.add_argument("--max-queued", type=int, default=Limits().max_queued, metavar="N")
    group.add_argument("--sleep-idle-seconds", type=float, default=0.0, metavar="S")
    group.add_argument("--unload-idle-seconds", type=float, default=0.0, metavar="S")
    group.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    made_up = made.add_argument_group("making a log up")
    made_up.add_argument("--make-trace", type=Path, metavar="FILE", help="writes a CSV log and ends")
    made_up.add_argument("--requests", type=int, default=1000, metavar="N")
    made_up.add_argument("--models", type=int, default=6, metavar="N")
    made_up.add_argument("--span-s", type=float, default=4 * 3600.0, metavar="S")


def _amount(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    try:
        return name, parse_bytes(size)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error} (NAME=SIZE)") from error


def make(options: argparse.Namespace) -> int:
    """Write a made-up log."""
    seed = options.seed if options.seed is not None else 0
    requests = trace.made_up(options.requests, options.models, options.span_s, seed)
    trace.write_trace(options.make_trace, requests)
    print(f"{len(requests)} requests for {options.models} models are in {options.make_trace}")
    return 0


def replay(options: argparse.Namespace) -> int:
    """Replay a log, once for each of `--models-max`."""
    try:
        requests = trace.read_trace(options.trace)
        needs = _needs(options)
        counts = [int(count) for count in options.models_max.split(",")]
    except (TraceError, ValueError) as error:
        print(f"scripts/simulate: {error}", file=sys.stderr)
        return 2
    outcomes = []
    for models_max in counts:
        run = Replay(_limits(options, models_max), needs, dict(options.device))
        run.run(requests)
        outcomes.append({"models_max": models_max, **outcome(run)})
    if options.json:
        print(json.dumps(outcomes if len(outcomes) > 1 else outcomes[0]))
    elif len(outcomes) > 1:
        _compare(outcomes)
    else:
        _show(outcomes[0], dict(options.device))
    return 0


def _needs(options: argparse.Namespace) -> dict[str, Needs]:
    rest = Needs(
        need=dict(options.need),
        load_s=options.load_s,
        duration_s=options.duration_s,
        sleep_idle_s=options.sleep_idle_seconds,
        unload_idle_s=options.unload_idle_seconds,
    )
    return trace.read_needs(options.needs, rest) if options.needs else {MODEL_REST: rest}


def _limits(options: argparse.Namespace, models_max: int) -> Limits:
    return Limits(
        models_max=models_max,
        drain_after_s=options.drain_after,
        queue_timeout_s=options.queue_timeout,
        max_queued=options.max_queued,
        margin_bytes=None if options.margin is None else int(options.margin * MIB),
    )


# ---- tables


def _show(found: Mapping[str, Any], devices: Mapping[str, int]) -> None:
    rows = [*found["models"].items(), ("all", found["total"])]
    _table("model", [(name, row) for name, row in rows])
    refusals = found["total"]["refusals"]
    if refusals:
        print("refused: " + ", ".join(f"{kind} {count}" for kind, count in sorted(refusals.items())))
    for name, total in devices.items():
        peak = found["peak_bytes"].get(name, 0)
        print(f"{name}: at most {format_bytes(peak)} of {format_bytes(total)} in use")


def _compare(outcomes: list[dict[str, Any]]) -> None:
    _table("models-max", [(str(found["models_max"]), found["total"]) for found in outcomes])


def _table(first: str, rows: list[tuple[str, Mapping[str, Any]]]) -> None:
    width = max(len(first), *(len(name) for name, _ in rows))
    print("  ".join([first.ljust(width), *(f"{head:>9}" for head in HEADS)]))
    for name, row in rows:
        cells = [f"{row[c]:>7.1f} s" if c.endswith("_s") else f"{row[c]:>9}" for c in COLUMNS]
        print("  ".join([name.ljust(width), *cells]))
