"""Answers that go on: the end of a ring, and then every new entry for as long as the client reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from llamad.daemon.admin import Exchange
from llamad.errors import UnavailableError
from llamad.observe.ring import Entry, Ring

T = TypeVar("T")

ENTRIES_DEFAULT = 100
ENTRIES_MAX = 2000


def answer_with_ring(
    exchange: Exchange, ring: Ring[T], content_type: str, encode: Callable[[Entry[T]], bytes]
) -> None:
    """`?n=` entries, oldest first; with `?follow=1` new ones until the client leaves."""
    request = exchange.request
    entries = ring.last(request.count("n", ENTRIES_DEFAULT, ENTRIES_MAX))
    follow = request.wants("follow")
    if follow:
        try:
            exchange.on_abandoned = ring.follow(lambda entry: exchange.write(encode(entry)))
        except OverflowError as error:
            raise UnavailableError(str(error), retry_after_s=10.0) from error
    exchange.begin(content_type)
    exchange.write(b"".join(map(encode, entries)))
    if not follow:
        exchange.end()
