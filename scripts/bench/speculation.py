#!/usr/bin/env python3
"""Speculation: tokens per second with and without, and how much of what was drafted came true.

    .venv/bin/python scripts/bench/speculation.py [MODEL.gguf] [--draft DRAFT.gguf] [--types TYPE,…] [--rounds N] [--tokens N]
                                                  [--streams N] [--json]

One instance without speculation and one for each type, with the same settings; each round asks all of them the same, in
turning order, and shown are medians over the rounds, and the median of the rounds' ratios over the one without. Two tasks:
`copy` gives a text back that was just read, which is where look-ups shine; `free` tells a story, where they do not.
Greedy, so that all do the same work. Drafts are 3 tokens of a look-up (`size-n`), and llama-server's defaults else.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import statistics
import threading
from pathlib import Path
from typing import Any

from serve import ANSWER_S, DEFAULT_MODEL, Door, direct

LOOK_UPS = ("ngram-simple", "ngram-map-k", "ngram-mod")
SETTINGS: dict[str, object] = {
    "ctx-size": 4096,
    "spec-ngram-simple-size-n": 3,
    "spec-ngram-map-k-size-n": 3,
    "spec-ngram-mod-n-match": 3,
    "spec-ngram-mod-n-min": 1,
}
LIST = "\n".join(
    f"{number}. {colour} {animal}"
    for number, (colour, animal) in enumerate(
        zip(
            ("red", "blue", "green", "black", "white", "grey", "brown", "pink", "gold", "pale"),
            ("fox", "owl", "bear", "crow", "swan", "wolf", "deer", "bird", "fish", "moth"),
            strict=True,
        ),
        1,
    )
)
TASKS = {
    "copy": f"{LIST}\n\nThe same list again:\n\n{LIST}\n\nThe same list again:\n\n",
    "free": "Once upon a time",
}


def main() -> None:
    asked = _arguments()
    names = ["none", *asked.types.split(",")]
    results: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        doors = {name: stack.enter_context(direct(asked.model, _options(name, asked))) for name in names}
        for task, prompt in TASKS.items():
            answers: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
            for turn in range(asked.rounds):
                for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
                    answers[name].append(_ask(doors[name], f"{turn}\n{prompt}", asked.tokens, asked.streams))
            results += [_row(task, name, answers[name], answers["none"]) for name in names]
    if asked.json:
        print(json.dumps(results))
    else:
        _print(results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--draft", type=Path, help="a draft model: the type draft-simple is measured, too")
    parser.add_argument("--types", default=",".join(LOOK_UPS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.draft is not None:
        asked.types += ",draft-simple"
    return asked


def _options(name: str, asked: argparse.Namespace) -> dict[str, object]:
    draft = {"spec-draft-model": str(asked.draft)} if name == "draft-simple" else {}
    return {**SETTINGS, "parallel": asked.streams, "spec-type": [name], **draft}


def _ask(door: Door, prompt: str, tokens: int, streams: int) -> dict[str, Any]:
    """Tokens per second of all streams together, and what speculation made of them."""
    answers: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda place=place: answers.append(_answer(door, f"{place}{prompt}", tokens)))
        for place in range(streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "tokens_per_s": sum(each["predicted_per_second"] for each in answers),
        "drafted": sum(each.get("draft_n", 0) for each in answers),
        "accepted": sum(each.get("draft_n_accepted", 0) for each in answers),
        "predicted": sum(each["predicted_n"] for each in answers),
    }


def _answer(door: Door, prompt: str, tokens: int) -> dict[str, Any]:
    body = {
        "prompt": prompt,
        "n_predict": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
    }
    connection = http.client.HTTPConnection(door.host, door.port, timeout=ANSWER_S)
    headers = {"Authorization": f"Bearer {door.token}"}
    connection.request("POST", "/completion", json.dumps(body), headers)
    document = json.loads(connection.getresponse().read())
    connection.close()
    timings: dict[str, Any] = document["timings"]
    return timings


def _row(
    task: str, name: str, answers: list[dict[str, Any]], without: list[dict[str, Any]]
) -> dict[str, Any]:
    drafted = sum(each["drafted"] for each in answers)
    ratios = [
        one["tokens_per_s"] / other["tokens_per_s"] for one, other in zip(answers, without, strict=True)
    ]
    return {
        "task": task,
        "type": name,
        "tokens_per_s": round(statistics.median(each["tokens_per_s"] for each in answers), 1),
        "ratio": round(statistics.median(ratios), 2),
        "drafted_per_token": round(drafted / sum(each["predicted"] for each in answers), 2),
        "accepted": round(sum(each["accepted"] for each in answers) / drafted, 2) if drafted else None,
    }


def _print(results: list[dict[str, Any]]) -> None:
    print(f"{'task':<6}{'type':<14}{'tokens/s':>9}{'ratio':>7}{'drafted/token':>15}{'accepted':>10}")
    for row in results:
        accepted = "" if row["accepted"] is None else f"{row['accepted']:.0%}"
        print(
            f"{row['task']:<6}{row['type']:<14}{row['tokens_per_s']:>9}{row['ratio']:>7}"
            f"{row['drafted_per_token']:>15}{accepted:>10}"
        )


if __name__ == "__main__":
    main()
