#!/usr/bin/env python3
"""llamad's instance and llama.cpp's llama-server side by side: the same model, the same options, the same requests.

    .venv/bin/python scripts/bench/versus.py WHAT [MODEL.gguf] [--llama-server PATH] [--rounds N] [--seconds S] [--json]

| WHAT | what is measured |
| --- | --- |
| streams | 1, 4, 8 and 16 streamed chats at once: tokens a second, the server's CPU time a token, time to the first token |
| prompt | one prompt of --prompt-tokens: tokens a second until the first token |
| gaps | four streams while a prompt of --prompt-tokens is read: the time between two tokens of a stream, p50 and p99 |
| rules | what a JSON schema costs a token more than free text, in CPU time |
| two | two servers with a model each that generate at the same time, two streams each: tokens a second of both |

Each round measures both servers, in turning order, in one run: on a machine that does other things too, only what is measured
side by side compares. Shown are medians over the rounds, the median of the rounds' ratios (llamad's over llama-server's), and
between which ratios the middle half of the rounds lies. No prompt is reused, by either.

llama-server's threads spin without end while they wait for each other, whoever else needs the core: its default, with which
it is fastest where nobody does, and many times slower where somebody does. `--llama-server-spin 1000` has it spin as an
instance does on shared cores.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import llama_server
from pairs import Pair, Row, print_table, rounds, summary
from raw_client import document
from serve import DEFAULT_MODEL, Door, direct
from token_times import Crowd, Stream, answer, percentile

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
NATIVE = "/completion"
SECOND_MODEL = DEFAULT_MODEL.with_name("gemma-3-270m-Q4_K_M.gguf")
WORDS = [
    "river",
    "stone",
    "lamp",
    "cloud",
    "table",
    "green",
    "seven",
    "under",
    "walks",
    "paper",
    "moon",
    "quiet",
]
SCHEMA = {
    "type": "array",
    "minItems": 6,
    "maxItems": 6,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 1, "maximum": 99},
            "likes": {"type": "array", "items": {"enum": ["music", "sport", "books"]}, "maxItems": 3},
        },
        "required": ["name", "age", "likes"],
    },
}
SAMPLED = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "seed": 1, "cache_prompt": False}
_numbers = itertools.count(1)


def main() -> int:
    arguments = parse_arguments()
    server = llama_server.find_or_exit(arguments.llama_server)
    load_before = os.getloadavg()[0]
    rows = dict(WHAT[arguments.what](arguments, server))
    report = {
        "what": arguments.what,
        "model": arguments.model.name,
        "machine": {"cores": len(os.sched_getaffinity(0)), "load": [load_before, os.getloadavg()[0]]},
        "rows": rows,
    }
    print(json.dumps(report)) if arguments.json else print_table(report)
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"To get a llama-server, {llama_server.HINT}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=tuple(WHAT))
    parser.add_argument("model", nargs="?", type=Path, default=DEFAULT_MODEL)
    llama_server.add_option(parser)
    parser.add_argument("--second-model", type=Path, default=SECOND_MODEL, help="for `two`")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=80.0, help="no further round after this long, but one of each"
    )
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 4, 8, 16])
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument(
        "--completions",
        action="store_true",
        help="text completions, not chats: for models without a template",
    )
    parser.add_argument("--prompt-tokens", type=int, default=3000, help="about so many")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--llama-server-spin",
        type=int,
        metavar="N",
        help="GOMP_SPINCOUNT for llama-server (default: its own)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    return parser.parse_args()


# ---- the servers


@contextlib.contextmanager
def both(arguments: argparse.Namespace, server: Path, model: Path) -> Iterator[Pair[Door]]:
    """An instance and a llama-server with the same options, both warm."""
    options = {
        "threads": arguments.threads,
        "ctx-size": 8192,
        "parallel": 16,
        "batch-size": 2048,
        "ubatch-size": 512,
        "kv-unified": True,
        "cache-ram": 0,
    }
    rounds_spun = arguments.llama_server_spin
    spin = {} if rounds_spun is None else {"GOMP_SPINCOUNT": str(rounds_spun)}
    with (
        direct(model.resolve(), options) as ours,
        llama_server.running(server, model.resolve(), options | {"ctx-checkpoints": 0}, spin) as theirs,
    ):
        doors = Pair(ours, theirs)
        for door in doors:
            with Crowd() as crowd:
                begin(crowd, door, arguments, 4)
                crowd.run()
        yield doors


def cpu_s(door: Door) -> float:
    """What the server has computed, all its threads (clock_getcpuclockid)."""
    return time.clock_gettime((~door.pid << 3) | 2)


# ---- requests


def text_of(door: Door, tokens: int) -> str:
    """A text of its own, of about so many tokens of the model's."""
    found = answer(door, "/tokenize", document(content=words(100)))["tokens"]
    assert isinstance(found, list)
    return words(tokens * 100 // len(found))


def words(count: int) -> str:
    """A text of its own, of so many words."""
    number = next(_numbers)
    return f"{number}: " + " ".join(WORDS[(number * 7 + i * i + i // 5) % len(WORDS)] for i in range(count))


def begin(crowd: Crowd, door: Door, arguments: argparse.Namespace, tokens: int, text: str = "") -> Stream:
    """A streamed answer of exactly so many tokens."""
    text = text or f"Question {words(3)}?"
    more = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "max_tokens": tokens,
    }
    if arguments.completions:
        return crowd.begin(door, COMPLETIONS, document(model="bench", prompt=text, **more, **SAMPLED))
    messages = [{"role": "user", "content": text}]
    return crowd.begin(door, CHAT, document(model="bench", messages=messages, **more, **SAMPLED))


# ---- what is measured


def streams(arguments: argparse.Namespace, server: Path) -> Iterator[tuple[str, dict[str, Row]]]:
    with both(arguments, server, arguments.model) as doors:
        deadline_s = time.monotonic() + arguments.seconds
        found: dict[int, list[Pair[Row]]] = {count: [] for count in arguments.streams}
        for number in range(arguments.rounds):
            for count in arguments.streams:
                if not number or time.monotonic() < deadline_s:
                    found[count] += rounds(doors, 1, deadline_s, generate(count, arguments), first=number)
        for count, pairs in found.items():
            yield f"{count} streams", summary(pairs)


def generate(count: int, arguments: argparse.Namespace) -> Callable[[Door], Row]:
    def measure(door: Door) -> Row:
        used_s = cpu_s(door)
        with Crowd() as crowd:
            crew = [begin(crowd, door, arguments, arguments.tokens) for _ in range(count)]
            crowd.run()
        used_s = cpu_s(door) - used_s
        total = sum(one.tokens for one in crew)
        return {
            "tokens/s": total / took_s(crew),
            "CPU ms/token": used_s * 1000 / total,
            "first token ms": statistics.median(one.at_s[0] - one.began_s for one in crew) * 1000,
        }

    return measure


def took_s(crew: list[Stream]) -> float:
    return max(one.at_s[-1] for one in crew) - min(one.began_s for one in crew)


def prompt(arguments: argparse.Namespace, server: Path) -> Iterator[tuple[str, dict[str, Row]]]:
    def measure(door: Door) -> Row:
        body = document(prompt=text_of(door, arguments.prompt_tokens), n_predict=1, **SAMPLED)
        used_s = cpu_s(door)
        timings = answer(door, NATIVE, body)["timings"]
        used_s = cpu_s(door) - used_s
        assert isinstance(timings, dict)
        return {"tokens/s": timings["prompt_per_second"], "CPU ms/token": used_s * 1000 / timings["prompt_n"]}

    yield from _simple("prompt", arguments, server, measure)


def gaps(arguments: argparse.Namespace, server: Path) -> Iterator[tuple[str, dict[str, Row]]]:
    def measure(door: Door) -> Row:
        text = text_of(door, arguments.prompt_tokens)
        with Crowd() as crowd:
            crew = [begin(crowd, door, arguments, 1000) for _ in range(4)]
            crowd.run_until(lambda: all(len(one.at_s) > 8 for one in crew))
            late = begin(crowd, door, arguments, 1, text)
            crowd.run_until(lambda: bool(late.at_s))
            # Whoever waited for that very step has its gap still open.
            seen = [len(one.at_s) for one in crew]
            crowd.run_until(lambda: all(len(one.at_s) > n for one, n in zip(crew, seen, strict=True)))
        between = [gap for one in crew for gap in one.gaps_ms(late.began_s)]
        return {
            "gap p50 ms": percentile(between, 50),
            "gap p99 ms": percentile(between, 99),
            "prompt s": late.at_s[0] - late.began_s,
        }

    yield from _simple("gaps", arguments, server, measure)


def rules(arguments: argparse.Namespace, server: Path) -> Iterator[tuple[str, dict[str, Row]]]:
    """In CPU time, by servers with one thread: what a rule costs is a hundredth of what a step's time varies."""

    def measure(door: Door) -> Row:
        about = {"prompt": f"Six people, as JSON ({words(2)}):", **SAMPLED}
        begun_ms, _ = _cpu_ms(door, about | {"n_predict": 1})

        def per_token(**more: object) -> float:
            used_ms, tokens = _cpu_ms(door, about | {"n_predict": 120} | more)
            return (used_ms - begun_ms) / (tokens - 1)

        ruled, free = per_token(json_schema=SCHEMA), per_token(ignore_eos=True)
        return {"rules ms/token": ruled - free, "free ms/token": free}

    arguments.threads = 1
    yield from _simple("rules", arguments, server, measure)


def _cpu_ms(door: Door, fields: dict[str, object]) -> tuple[float, int]:
    """What an answer has the server compute, and how many tokens it has."""
    used_s = cpu_s(door)
    timings = answer(door, NATIVE, document(**fields))["timings"]
    used_s = cpu_s(door) - used_s
    assert isinstance(timings, dict)
    return used_s * 1000, int(timings["predicted_n"])


def two(arguments: argparse.Namespace, server: Path) -> Iterator[tuple[str, dict[str, Row]]]:
    with (
        both(arguments, server, arguments.model) as one,
        both(arguments, server, arguments.second_model) as other,
    ):
        doors = Pair((one.ours, other.ours), (one.theirs, other.theirs))

        def measure(both_models: tuple[Door, Door]) -> Row:
            """Until both are done the first may have ended: what counts is the time in which both generate."""
            with Crowd() as crowd:
                crews = [
                    [begin(crowd, door, arguments, arguments.tokens) for _ in range(2)]
                    for door in both_models
                ]
                crowd.run_until(lambda: any(all(s.ended for s in crew) for crew in crews))
                now = time.perf_counter()
            crew = [stream for each in crews for stream in each]
            began = min(stream.began_s for stream in crew)
            return {"tokens/s": sum(len(stream.at_s) for stream in crew) / (now - began)}

        deadline_s = time.monotonic() + arguments.seconds
        yield "two models", summary(rounds(doors, arguments.rounds, deadline_s, measure))


def _simple(
    name: str, arguments: argparse.Namespace, server: Path, measure: Callable[[Door], Row]
) -> Iterator[tuple[str, dict[str, Row]]]:
    with both(arguments, server, arguments.model) as doors:
        deadline_s = time.monotonic() + arguments.seconds
        yield name, summary(rounds(doors, arguments.rounds, deadline_s, measure))


WHAT = {"streams": streams, "prompt": prompt, "gaps": gaps, "rules": rules, "two": two}


if __name__ == "__main__":
    sys.exit(main())
