"""Who of an exchange may be silent for how long."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from llamad.proxy import silence
from llamad.proxy.connection import Connection
from llamad.proxy.silence import Silence

WITHIN_S = 30.0


class Exchange:
    """As much of a connection as is looked at. `awaited`: it is the instance that says nothing."""

    def __init__(self, *, awaited: bool) -> None:
        self.reads = 0
        self.awaited = awaited
        self.ended = asyncio.Event()

    def give_up(self, reason: str) -> None:
        self.ended.set()


def watched(limits: Silence, *, awaited: bool) -> Exchange:
    exchange = Exchange(awaited=awaited)
    limits.watch(cast(Connection, exchange), exchange.ended.set)
    return exchange


def test_a_client_that_takes_nothing_has_less_time_than_an_instance_that_thinks(
    monkeypatch: pytest.MonkeyPatch,
):
    """It holds a place at a model that others wait for."""
    monkeypatch.setattr(silence, "CLIENT_S_MAX", 1.0)
    monkeypatch.setattr(silence, "LOOK_S_MAX", 0.02)

    async def both() -> None:
        limits = Silence(3600)
        thinking, full, slow = (watched(limits, awaited=awaited) for awaited in (True, False, False))

        async def drink() -> None:
            while True:
                await asyncio.sleep(0.02)
                slow.reads += 1

        drinking = asyncio.create_task(drink())
        async with asyncio.timeout(WITHIN_S):
            await full.ended.wait()
        assert not thinking.ended.is_set()
        assert not slow.ended.is_set()
        drinking.cancel()
        async with asyncio.timeout(WITHIN_S):
            await slow.ended.wait()
        limits.forget(cast(Connection, thinking))

    asyncio.run(both())


def test_a_shorter_limit_is_for_both():
    async def both() -> None:
        limits = Silence(0.1)
        exchanges = [watched(limits, awaited=awaited) for awaited in (True, False)]
        async with asyncio.timeout(WITHIN_S):
            for exchange in exchanges:
                await exchange.ended.wait()

    asyncio.run(both())
