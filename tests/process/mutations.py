"""Bytes made wrong: a seeded mutator over samples of what a protocol's clients say. Pure.

    for data in mutants(SAMPLES, TOKENS, random.Random(7)): ...

Each mutant is a sample with one to a few changes, some drawn blindly and some from `tokens`, the words that a parser takes
decisions on. The same seed makes the same mutants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

CHANGES_MAX = 4
MUTANT_BYTES_MAX = 64 * 1024

Change = Callable[[bytes, Random], bytes]


def mutants(samples: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> Iterator[bytes]:
    """Without an end."""
    while True:
        data = random.choice(samples)
        for _ in range(random.randint(1, CHANGES_MAX)):
            data = _changed(data, samples, tokens, random)
        yield data[:MUTANT_BYTES_MAX]


def cut(data: bytes, random: Random) -> list[bytes]:
    """The same bytes in one to four packets."""
    places = sorted(random.randint(0, len(data)) for _ in range(random.randint(0, 3)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def _changed(data: bytes, samples: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    changes: tuple[Change, ...] = (
        _flip,
        _delete,
        _repeat,
        _truncate,
        _digit,
        lambda data, random: _put(data, random.choice(tokens), random),
        lambda data, random: _put(data, random.randbytes(random.randint(1, 8)), random),
        lambda data, random: _put(data, random.choice(samples), random),
    )
    return random.choice(changes)(data, random)


def _span(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randint(0, len(data))
    return start, min(len(data), start + random.choice((1, 1, 2, 4, 16, 64, 512)))


def _flip(data: bytes, random: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _delete(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _repeat(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:end] + data[start:end] * random.choice((1, 2, 100)) + data[end:]


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randint(0, len(data))]


def _digit(data: bytes, random: Random) -> bytes:
    """Another digit where there is one: lengths, versions, offsets, chunk sizes."""
    places = [place for place, byte in enumerate(data) if byte in b"0123456789"]
    if not places:
        return data
    place = random.choice(places)
    return data[:place] + random.choice((b"0", b"9", b"-1", b"99999999", b"f")) + data[place + 1 :]


def _put(data: bytes, more: bytes, random: Random) -> bytes:
    """In between, or in the place of as many bytes."""
    start = random.randint(0, len(data))
    return data[:start] + more + data[start + random.choice((0, len(more))) :]
