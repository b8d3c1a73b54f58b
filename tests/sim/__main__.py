"""The command line of the simulator; `scripts/simulate` runs it."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Callable

from tests.sim import trace_cli
from tests.sim.campaign import Campaign, Totals

WORDS = """\
Lets random worlds run against the scheduler: clients, workers, operators, devices and processes that crash, hang, lie and
come late, in virtual time. After each step all promises are checked; the first broken one ends the run with exit
status 1, the seed, the promise and the last steps. The same seed gives the same world.

With --trace a log of requests is replayed under given limits instead, to choose limits by.
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "scripts/simulate", description=WORDS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--events", type=int, default=100_000, metavar="N", help="steps to make in all (%(default)s)"
    )
    made.add_argument(
        "--seed", type=int, metavar="S", help="of the first world; those after it count up (any)"
    )
    made.add_argument("--worlds", type=int, metavar="N", help="so many worlds, however many steps they take")
    made.add_argument("--seconds", type=float, metavar="T", help="end after this long, even with fewer steps")
    made.add_argument("--jobs", type=int, default=1, metavar="J", help="processes at once (%(default)s)")
    made.add_argument(
        "--chaos",
        type=float,
        metavar="X",
        help="how often things go wrong: 0 never, 1 as usual, 2 twice as often",
    )
    trace_cli.add_options(made)
    return made


def simulate(options: argparse.Namespace) -> int:
    seed = options.seed if options.seed is not None else secrets.randbelow(1 << 32)
    began = time.monotonic()
    campaign = Campaign(
        seed, options.events, options.worlds, options.seconds, options.jobs, options.chaos, _progress(began)
    )
    totals = campaign.run()
    _clear_progress()
    if totals.failure:
        chaos = f" --chaos {options.chaos:g}" if options.chaos is not None else ""
        print(totals.failure)
        print(f"again with: scripts/simulate --worlds 1 --seed {totals.failed_seed}{chaos}")
    print(summary(totals, seed, time.monotonic() - began))
    return 1 if totals.failure else 0


def summary(totals: Totals, seed: int, took_s: float) -> str:
    """One line with everything that counts."""
    verdict = f"BROKEN by seed {totals.failed_seed}" if totals.failure else "no promise broken"
    seeds = f"seeds {seed} to {seed + totals.worlds - 1}" if totals.worlds > 1 else f"seed {seed}"
    return (
        f"{verdict}: {totals.steps:,} events in {totals.worlds:,} worlds ({seeds}), "
        f"{totals.seen['Spawn'] + totals.seen['Wake']:,} loads, {totals.seen['eviction']:,} evictions, "
        f"longest wait {totals.longest_wait_s:.1f} s, longest in a calm queue {totals.longest_calm_s:.1f} s, "
        f"{totals.steps / took_s:,.0f} events/s"
    )


def _progress(began: float) -> Callable[[Totals], None]:
    """A line that is written over, on a terminal only."""
    shown_at = began

    def show(totals: Totals) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if sys.stderr.isatty() and now - shown_at >= 0.5:
            shown_at = now
            rate = totals.steps / (now - began)
            print(
                f"\r{totals.steps:>12,} events, {totals.worlds:,} worlds, {rate:,.0f} events/s ",
                end="",
                file=sys.stderr,
                flush=True,
            )

    return show


def _clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.make_trace:
        return trace_cli.make(options)
    return trace_cli.replay(options) if options.trace else simulate(options)


if __name__ == "__main__":
    sys.exit(main())
