"""What to choose where somebody left it open: how much context, then how many layers on GPUs. Pure.

llama-server's `--fit`, over any function that tells what a choice would take:

1. The largest context with all layers as wanted. If it fits, that is it.
2. Where the context is open: if the smallest one fits, the largest that does, in steps of GRANULARITY tokens a stream.
3. Where the number of layers is open, too: with the smallest context (or the fixed one) as many layers as fit. What
   leaves a GPU comes to the host, so the host is asked last: fewer layers would only make it worse.

Cost is nearly a straight line in both (buffers are rounded, layers differ), so the ends give a guess, and two more
probes confirm that it fits and that one step more would not.

A choice never exceeds a limit; there is none that is larger and does not either, as long as cost only grows with context
and, on GPUs, with layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from llamad.engine.breakdown import HOST, Device

_MIB = 1024 * 1024
GRANULARITY = 256
"""llama.cpp pads contexts to this many tokens."""
FIT_CTX_DEFAULT = 4096
FIT_TARGET_DEFAULT_BYTES = 1024 * _MIB

Cost = Mapping[str, int]
"""Bytes by device."""
Probe = Callable[[int, int], Cost]
"""What a context size and a number of GPU layers would take."""


@dataclass(frozen=True, slots=True)
class Range:
    """What may be chosen.

    The context from `n_ctx_min` to `n_ctx_max`; they are the same where it is fixed. Layers on GPUs: `n_gpu_layers` are
    wanted, and fewer allowed where `layers_open`. `n_streams`: parts that a context is cut into, 1 where it is shared.
    """

    n_ctx_min: int
    n_ctx_max: int
    n_gpu_layers: int
    layers_open: bool = False
    n_streams: int = 1

    @property
    def fixed(self) -> bool:
        return self.n_ctx_min == self.n_ctx_max and not self.layers_open


@dataclass(frozen=True, slots=True)
class Choice:
    """What fits, and what it takes."""

    n_ctx: int
    n_gpu_layers: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing fits. `cost` is what the least choice would take; `reason` completes "cannot load MODEL:"."""

    reason: str
    cost: Cost


def context_range(n_ctx: int, n_ctx_default: int, n_streams: int, fit: bool, fit_ctx: int) -> tuple[int, int]:
    """Smallest and largest context, in tokens over all streams.

    `n_ctx` 0: nobody chose one, then `n_ctx_default` is the largest, and with `fit` the smallest is `fit_ctx` tokens for
    each stream, or less where the largest is less.
    """
    largest = n_ctx or n_ctx_default
    return (min(fit_ctx * n_streams, largest) if fit and not n_ctx else largest), largest


def choose(probe: Probe, among: Range, limits: Cost) -> Choice | Refusal:
    """The largest choice within `limits`, bytes by device; a device without one is not limited."""
    search = _Search(probe, limits)
    wanted = search.at(among.n_ctx_max, among.n_gpu_layers)
    if search.fits(wanted):
        return wanted
    if among.n_ctx_min < among.n_ctx_max:
        least = search.at(among.n_ctx_min, among.n_gpu_layers)
        if search.fits(least):
            return _largest_context(search, among, least, wanted)
    else:
        least = wanted
    if among.layers_open and among.n_gpu_layers > 0:
        least = _most_layers(search, least)
        if search.fits(least):
            return least
    return Refusal(_shortage(least, limits), least.cost)


def limits_for(
    devices: Iterable[Device], reserved: Cost | None, targets_bytes: tuple[int, ...] | None
) -> dict[str, int]:
    """What a model may take of each device.

    `reserved`: what the books have set aside for it, their own margin left out already; None where nobody keeps books.
    `targets_bytes`: memory to leave free on each GPU (llama-server's `fit-target`), one for all or one each, None where
    nobody said so: then FIT_TARGET_DEFAULT_BYTES is left, but of what is reserved all may be used.
    """
    found = list(devices)
    gpus = [device for device in found if device.kind != HOST] or found
    limits = dict(reserved or {})
    if reserved is None or targets_bytes is not None:
        targets = targets_bytes or (FIT_TARGET_DEFAULT_BYTES,)
        for index, device in enumerate(gpus):
            room = max(0, device.free_bytes - _target(targets, index))
            limits[device.name] = min(room, limits.get(device.name, room))
    return limits


def _target(targets: tuple[int, ...], index: int) -> int:
    if len(targets) == 1:
        return targets[0]
    return targets[index] if index < len(targets) else FIT_TARGET_DEFAULT_BYTES


def parse_targets(text: str) -> tuple[int, ...]:
    """`fit-target`, MiB: one number, or several with `,` or `/` between them. In bytes. Raises ValueError."""
    words = text.replace("/", ",").split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ValueError(f"option fit-target is {text!r}, expected MiB, or MiB0,MiB1,…")
    return tuple(int(word) * _MIB for word in words)


class _Search:
    """Probes, and compares with the limits."""

    def __init__(self, probe: Probe, limits: Cost) -> None:
        self._probe = probe
        self.limits = limits

    def at(self, n_ctx: int, n_gpu_layers: int) -> Choice:
        return Choice(n_ctx, n_gpu_layers, self._probe(n_ctx, n_gpu_layers))

    def fits(self, choice: Choice, devices: Iterable[str] | None = None) -> bool:
        """Within the limits of these devices, by default of all."""
        names = choice.cost if devices is None else devices
        return all(choice.cost.get(name, 0) <= self.limits[name] for name in names if name in self.limits)


def _largest_context(search: _Search, among: Range, low: Choice, high: Choice) -> Choice:
    """Between a context that fits and one that does not, on the grid of whole steps."""
    step = GRANULARITY * among.n_streams
    guess = low.n_ctx + int((high.n_ctx - low.n_ctx) * _crossing(low, high, search.limits))
    return _largest(
        low,
        range(low.n_ctx // step + 1, -(-high.n_ctx // step)),
        guess // step,
        lambda index: search.at(index * step, among.n_gpu_layers),
        search.fits,
    )


def _most_layers(search: _Search, wanted: Choice) -> Choice:
    """The most layers with which no GPU is over its limit, 0 if some GPU always is.

    `wanted` itself, where it is the host that is short: it would only get more with fewer layers.
    """
    gpus = {name: limit for name, limit in search.limits.items() if name != HOST}
    if search.fits(wanted, gpus):
        return wanted
    # The output layer comes first and may be as large as ten others: the straight line begins behind it.
    low = search.at(wanted.n_ctx, 1) if wanted.n_gpu_layers > 1 else wanted
    if not search.fits(low, gpus):
        return search.at(wanted.n_ctx, 0)
    return _largest(
        low,
        range(2, wanted.n_gpu_layers),
        1 + int((wanted.n_gpu_layers - 1) * _crossing(low, wanted, gpus)),
        lambda n_gpu_layers: search.at(wanted.n_ctx, n_gpu_layers),
        lambda choice: search.fits(choice, gpus),
    )


def _largest(
    low: Choice, grid: range, guess: int, at: Callable[[int], Choice], fits: Callable[[Choice], bool]
) -> Choice:
    """The last choice of the grid that fits, `low` if none does; what is beyond one that does not fit does not, either.

    First the guess, then its neighbour, which is the end of it on a straight line; else by halves.
    """
    first, beyond = grid.start, grid.stop
    for attempt in itertools.count():
        if first >= beyond:
            break
        index = min(max(guess, first), beyond - 1)
        tried = at(index)
        if fits(tried):
            low, first = tried, index + 1
        else:
            beyond = index
        guess = (index + 1 if low is tried else index - 1) if attempt == 0 else (first + beyond) // 2
    return low


def _crossing(low: Choice, high: Choice, limits: Cost) -> Fraction:
    """How far it is from `low` to where the first limit is reached, on the straight line to `high`: 0 to 1."""
    crossings = [Fraction(1)]
    for name, limit in limits.items():
        start, end = low.cost.get(name, 0), high.cost.get(name, 0)
        if end > limit and end > start:
            crossings.append(Fraction(limit - start, end - start))
    return min(crossings)


def _shortage(choice: Choice, limits: Cost) -> str:
    short = (
        f"{need / _MIB:.0f} MiB needed on {name}, {limits[name] / _MIB:.0f} MiB to be had"
        for name, need in sorted(choice.cost.items())
        if name in limits and need > limits[name]
    )
    return f"{', '.join(short)} (context {choice.n_ctx}, {choice.n_gpu_layers} layers on GPUs)"
