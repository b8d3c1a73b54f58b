#!/usr/bin/env python3
"""What the front costs: added latency, relayed chunks per CPU-second, memory; next to llama.cpp's router where there is one.

    .venv/bin/python scripts/bench/front.py [MODEL.gguf] [--llama-server PATH] [--rounds N] [--seconds S] [--json]

The router is that of --llama-server (see `versus.py --help` for how to get one). Each round measures all ways,
in turning order, in one run: on a machine that does other things too, only what is measured side by side compares. Shown are
medians over the rounds, and medians of the rounds' ratios.

* added latency: of a small request (/tokenize), through the front less at the instance itself; half and 99 % of
  them are faster, with 1 and 16 clients that ask one after another.
* relayed chunks per CPU-second: events of streams, over what the front's processes used meanwhile. The model is a real
  one and as slow as it is: only the front's own time counts.
* memory: what each process of the front alone holds, after all that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import llama_server
from raw_client import document, latencies_s, stream_events
from serve import DEFAULT_MODEL, Door
from ways import Way, llamad_way, router_way

CLIENTS = (1, 16)
STREAMS = (1, 16, 64)
COMPLETIONS = "/v1/completions"
# Of each stream, so that a round takes some seconds whatever their number.
TOKENS = {1: 96, 16: 24, 64: 12}
OPTIONS = {"ctx-size": 8192, "parallel": max(STREAMS)}
SMALL = document(model="bench", content="one small request")

Row = dict[str, float]


def main() -> int:
    arguments = parse_arguments()
    server = llama_server.find(arguments.llama_server)
    load_before = os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        ways = [stack.enter_context(llamad_way(arguments.model.resolve(), OPTIONS))]
        if server is not None:
            ways.append(stack.enter_context(router_way(server, arguments.model.resolve(), OPTIONS, SMALL)))
        for way in ways:
            warm_up(way)
        deadline_s = time.monotonic() + arguments.seconds
        latency = {
            clients: rounds(ways, arguments.rounds, deadline_s, latency_of(clients, arguments.requests))
            for clients in CLIENTS
        }
        chunks = {
            streams: rounds(ways, arguments.rounds, deadline_s, chunks_of(streams)) for streams in STREAMS
        }
        memory = {way.name: way.memory_mib() for way in ways}
    report = {
        "machine": {"cores": len(os.sched_getaffinity(0)), "load": [load_before, os.getloadavg()[0]]},
        "model": arguments.model.name,
        "latency": {clients: summary(found) for clients, found in latency.items()},
        "chunks": {streams: summary(found) for streams, found in chunks.items()},
        "memory_mib": memory,
    }
    print(json.dumps(report)) if arguments.json else show(report)
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", type=Path, default=DEFAULT_MODEL)
    llama_server.add_option(parser)
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement")
    parser.add_argument("--requests", type=int, default=400, help="small requests of each round and way")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="no further round after this long, but one of each"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    return parser.parse_args()


# ---- measuring


def warm_up(way: Way) -> None:
    """Loaded, with connections and caches as in the midst of work."""
    for door in (way.direct, way.through):
        latencies_s(door, "/tokenize", SMALL, max(CLIENTS), 50)
        stream_events(door, COMPLETIONS, stream_bodies(2, 2, 0))


def rounds(
    ways: list[Way], count: int, deadline_s: float, measure: Callable[[Way, int], Row]
) -> dict[str, list[Row]]:
    """Each way's rows, round by round."""
    found: dict[str, list[Row]] = {way.name: [] for way in ways}
    for number in range(count):
        if number and time.monotonic() > deadline_s:
            break
        for way in ways if number % 2 else ways[::-1]:
            found[way.name].append(measure(way, number))
    return found


def latency_of(clients: int, requests: int) -> Callable[[Way, int], Row]:
    def measure(way: Way, number: int) -> Row:
        """Milliseconds."""
        doors = [("direct", way.direct), ("through", way.through)]
        row: Row = {}
        for name, door in doors if number % 2 else doors[::-1]:
            p50, p99 = percentiles_ms(door, clients, requests)
            row |= {f"{name}_p50_ms": p50, f"{name}_p99_ms": p99}
        for mark in ("p50", "p99"):
            row[f"added_{mark}_ms"] = row[f"through_{mark}_ms"] - row[f"direct_{mark}_ms"]
        return row

    return measure


def percentiles_ms(door: Door, clients: int, requests: int) -> tuple[float, float]:
    cuts = statistics.quantiles(latencies_s(door, "/tokenize", SMALL, clients, requests), n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def chunks_of(streams: int) -> Callable[[Way, int], Row]:
    def measure(way: Way, number: int) -> Row:
        """Events over what the front's processes used; what they do besides serving (heartbeats) is in it."""
        bodies = stream_bodies(streams, TOKENS[streams], number)
        used_s = way.cpu_s()
        events = stream_events(way.through, COMPLETIONS, bodies)
        used_s = way.cpu_s() - used_s
        return {"chunks_per_cpu_s": events / used_s, "chunks": events}

    return measure


def stream_bodies(streams: int, tokens: int, number: int) -> list[bytes]:
    return [
        document(
            model="bench",
            prompt=f"{number} {one}",
            stream=True,
            max_tokens=tokens,
            ignore_eos=True,
            temperature=0.8,
            seed=1,
        )
        for one in range(streams)
    ]


# ---- showing


def summary(found: dict[str, list[Row]]) -> dict[str, Row]:
    """Medians of each way; under `ratio` those of llamad's rows over the router's."""
    shown = {name: medians(rows) for name, rows in found.items()}
    if "router" in found:
        pairs = list(zip(found["llamad"], found["router"], strict=True))
        ratios = [{key: ours[key] / theirs[key] for key in ours if theirs[key] > 0} for ours, theirs in pairs]
        shown["ratio"] = medians(ratios)
    return shown


def medians(rows: list[Row]) -> Row:
    """Of what all rows have: a difference that is nothing in one of them has no ratio."""
    keys = [key for key in rows[0] if all(key in row for row in rows)]
    values = {key: statistics.median(row[key] for row in rows) for key in keys}
    return {key: round(value, 3) for key, value in values.items()} | {"rounds": len(rows)}


def show(report: dict[str, object]) -> None:
    for line in table_lines(report):
        print(line)


def table_lines(report: dict[str, object]) -> Iterator[str]:
    machine = report["machine"]
    assert isinstance(machine, dict)
    yield f"{report['model']}, {machine['cores']} cores, load {machine['load'][0]:.1f} to {machine['load'][1]:.1f}"
    for title, label in (("latency", "clients"), ("chunks", "streams")):
        table = report[title]
        assert isinstance(table, dict)
        for count, rows in table.items():
            yield f"\n{title}, {count} {label}"
            for name, row in rows.items():
                yield f"  {name:>8}  " + "  ".join(f"{key} {value:g}" for key, value in row.items())
    memory = report["memory_mib"]
    assert isinstance(memory, dict)
    yield "\nmemory, MiB a process"
    for name, sizes in memory.items():
        yield f"  {name:>8}  " + "  ".join(f"{size:g}" for size in sizes)


if __name__ == "__main__":
    sys.exit(main())
