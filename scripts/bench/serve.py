"""Tokens per second and time to the first token for 1, 4 and 8 streams: at the instance itself and through the port.

    .venv/bin/python scripts/bench/serve.py [MODEL.gguf] [--rounds N] [--tokens N] [--seconds S] [--json]

Both ways lead to an instance of the same settings: one is a child started here by the pipe protocol, the other belongs
to a llamad started here. Each round measures both, in alternating order, with prompts that no slot has seen; medians
over the rounds are shown, and the median of the rounds' ratios, which says more than two absolute numbers on a machine
that does other things too. The measuring threads share the processor with what they measure.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

# For the script in the folder above.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from free_port import free_port

from llamad.daemon.spawn import CHILD_COMMAND, child_environment
from llamad.wire.child import Start, State, encode, parse_report

DEFAULT_MODEL = Path.home() / ".cache/llamad/models/SmolLM2-135M-Instruct.Q4_1.gguf"
STREAMS = (1, 4, 8)
START_S = 60.0
ANSWER_S = 300.0
WAYS = ("direct", "port")


@dataclass(frozen=True)
class Door:
    """Where requests go, and the key that is asked for there. `pid`: who computes, where that is one process."""

    host: str
    port: int
    token: str
    model: str
    pid: int = 0


@dataclass(frozen=True)
class Stream:
    """One measured answer; times in seconds of the monotonic clock."""

    tokens: int
    started_s: float
    first_s: float
    ended_s: float


@dataclass(frozen=True)
class Sample:
    """Some streams at once, on one way."""

    way: str
    streams: int
    tokens_per_s: float
    first_token_ms: float


# ---- the two ways


@contextlib.contextmanager
def direct(model: Path, options: Mapping[str, object]) -> Iterator[Door]:
    """An instance started here as the supervisor would."""
    token = secrets.token_urlsafe(16)
    body = {
        "model": "bench",
        "path": str(model),
        "options": dict(options),
        "token": token,
        "transport": "tcp",
    }
    child = subprocess.Popen(
        CHILD_COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=child_environment(os.environ, "instance"),
    )
    assert child.stdin
    assert child.stdout
    try:
        child.stdin.write(encode(Start("instance", body)))
        child.stdin.flush()
        address = _ready_address(child.stdout)
        threading.Thread(target=child.stdout.read, daemon=True).start()
        host, _, port = address.rpartition(":")
        yield Door(host, int(port), token, "bench", child.pid)
    finally:
        child.stdin.close()
        child.wait(START_S)


def _ready_address(reports: Iterator[bytes]) -> str:
    for line in reports:
        report = parse_report(line)
        if isinstance(report, State) and report.state == "ready":
            return str(report.payload["address"])
        if isinstance(report, State) and report.state == "failed":
            raise SystemExit(f"cannot start the instance: {report.payload['message']}")
    raise SystemExit("cannot start the instance: it ended")


@contextlib.contextmanager
def through_port(model: Path, options: Mapping[str, object]) -> Iterator[Door]:
    """A llamad with that one model."""
    folder = Path(tempfile.mkdtemp(prefix="llamad-bench-"))
    port = free_port(0)
    lines = [
        "version = 1",
        "[bench]",
        f"model = {model}",
        *(f"{key} = {value}" for key, value in options.items()),
    ]
    (folder / "models.ini").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "llamad", "--config", "/dev/null", "--port", str(port)]
    command += ["--models-preset", str(folder / "models.ini"), "--runtime-dir", str(folder / "run")]
    command += ["--state-dir", str(folder / "state")]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait_until_healthy(port, daemon, folder / "log")
        yield Door("127.0.0.1", port, "", "bench")
    finally:
        daemon.terminate()
        daemon.wait(START_S)
        shutil.rmtree(folder)


def _wait_until_healthy(port: int, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and daemon.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.1)
        finally:
            connection.close()
    raise SystemExit(f"cannot start llamad:\n{log.read_text()[-2000:]}")


# ---- measuring


def ask(door: Door, prompt: str, tokens: int) -> Stream:
    """One streamed chat answer of exactly `tokens` tokens."""
    body = {
        "model": door.model,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": tokens,
        "ignore_eos": True,
        "cache_prompt": False,
        "temperature": 0.8,
        "seed": 1,
    }
    headers = {"Content-Type": "application/json"}
    if door.token:
        headers["Authorization"] = f"Bearer {door.token}"
    connection = http.client.HTTPConnection(door.host, door.port, timeout=ANSWER_S)
    started_s = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"cannot measure: HTTP {response.status} {response.read()[:500]!r}")
    first_s, counted = 0.0, 0
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line.removeprefix(b"data: "))
        if "error" in event:
            raise SystemExit(f"cannot measure: {event['error']['message']}")
        if not first_s and any(choice["delta"].get("content") for choice in event["choices"]):
            first_s = time.monotonic()
        counted = (event.get("usage") or {}).get("completion_tokens", counted)
    ended_s = time.monotonic()
    connection.close()
    return Stream(counted, started_s, first_s or ended_s, ended_s)


def measure(door: Door, way: str, streams: int, tokens: int, round_number: int) -> Sample:
    """`streams` answers at once. Tokens per second count from the first request to the last end, all streams together."""
    prompts = [
        f"Round {round_number}, {way} {streams}.{number}: describe the number {number * 37 + round_number}."
        for number in range(streams)
    ]
    with ThreadPoolExecutor(streams) as pool:
        done = list(pool.map(lambda prompt: ask(door, prompt, tokens), prompts))
    took_s = max(one.ended_s for one in done) - min(one.started_s for one in done)
    first_ms = statistics.median(one.first_s - one.started_s for one in done) * 1000
    return Sample(way, streams, sum(one.tokens for one in done) / took_s, first_ms)


def rounds(doors: dict[str, Door], arguments: argparse.Namespace) -> Iterator[list[Sample]]:
    """For each number of streams and each round, both ways; no further round once the time is up, but one of each."""
    deadline_s = time.monotonic() + arguments.seconds
    for number in range(arguments.rounds):
        for streams in STREAMS:
            if number and time.monotonic() > deadline_s:
                return
            order = WAYS if (number + streams) % 2 else WAYS[::-1]
            yield [measure(doors[way], way, streams, arguments.tokens, number) for way in order]


# ---- showing


def summary(pairs: list[list[Sample]]) -> list[dict[str, float | int]]:
    """One row for each number of streams: medians of both ways and of the paired ratios."""
    rows = []
    for streams in STREAMS:
        by_way = {
            way: [
                sample for pair in pairs for sample in pair if (sample.way, sample.streams) == (way, streams)
            ]
            for way in WAYS
        }
        paired = list(zip(by_way["direct"], by_way["port"], strict=True))
        row: dict[str, float | int] = {"streams": streams, "rounds": len(paired)}
        for way in WAYS:
            row[f"{way}_tokens_per_s"] = round(statistics.median(one.tokens_per_s for one in by_way[way]), 1)
            row[f"{way}_first_token_ms"] = round(
                statistics.median(one.first_token_ms for one in by_way[way]), 1
            )
        row["port_to_direct"] = round(
            statistics.median(b.tokens_per_s / a.tokens_per_s for a, b in paired), 3
        )
        rows.append(row)
    return rows


def print_table(rows: list[dict[str, float | int]]) -> None:
    print(f"{'':>8} {'tokens/s':^21} {'first token, ms':^21}")
    print(
        f"{'streams':>8} {'direct':>10} {'port':>10} {'direct':>10} {'port':>10} {'port/direct':>13} {'rounds':>7}"
    )
    for row in rows:
        print(
            f"{row['streams']:>8} {row['direct_tokens_per_s']:>10} {row['port_tokens_per_s']:>10}"
            f" {row['direct_first_token_ms']:>10} {row['port_first_token_ms']:>10}"
            f" {row['port_to_direct']:>13} {row['rounds']:>7}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description="tokens/s and time to the first token, direct and through the port"
    )
    parser.add_argument("model", nargs="?", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48, help="tokens of each answer")
    parser.add_argument("--seconds", type=float, default=180.0, help="start no further round after this long")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    options = {"ctx-size": 4096, "parallel": max(STREAMS)}
    with (
        direct(arguments.model.resolve(), options) as at_instance,
        through_port(arguments.model.resolve(), options) as at_port,
    ):
        doors = {"direct": at_instance, "port": at_port}
        for door in doors.values():
            ask(door, "Warm up.", 4)
        rows = summary(list(rounds(doors, arguments)))
    if arguments.json:
        machine = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
        print(
            json.dumps(
                {"model": arguments.model.name, "tokens": arguments.tokens, "machine": machine, "rows": rows}
            )
        )
    else:
        print_table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
