"""The instance's thread for what takes long: who waits for whom."""

from __future__ import annotations

import asyncio
import threading

import pytest

from llamad.child.worker import Worker

WITHIN_S = 30


def test_what_a_generation_needs_goes_before_what_does_not_and_short_before_long() -> None:
    done: list[str] = []
    gate = threading.Event()

    async def crowd() -> None:
        worker = Worker()
        jobs = [asyncio.create_task(worker.do(gate.wait))]
        for name, weight in (("long", 9000), ("longest", 9999), ("short", 3000), ("first", 0), ("second", 0)):
            jobs.append(asyncio.create_task(worker.do(lambda name=name: done.append(name), weight=weight)))
        await asyncio.sleep(0)
        assert not worker.idle
        gate.set()
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(*jobs)
        assert worker.idle
        worker.close()

    asyncio.run(crowd())
    assert done == ["first", "second", "short", "long", "longest"]


def test_who_leaves_is_taken_out_and_what_has_begun_ends_before_the_next() -> None:
    done: list[str] = []
    gate, begun = threading.Event(), threading.Event()

    def begin() -> None:
        begun.set()
        gate.wait()
        done.append("begun")

    async def leaving() -> None:
        worker = Worker()
        first = asyncio.create_task(worker.do(begin))
        await asyncio.to_thread(begun.wait, WITHIN_S)
        gone = [asyncio.create_task(worker.do(lambda: done.append("gone"))) for _ in range(3)]
        stays = asyncio.create_task(worker.do(lambda: done.append("stays"), weight=1))
        await asyncio.sleep(0)
        for job in (gone[1], first, gone[0], gone[2]):
            job.cancel()
            await asyncio.sleep(0)
        gate.set()
        async with asyncio.timeout(WITHIN_S):
            await stays
            await asyncio.gather(first, *gone, return_exceptions=True)
        assert worker.idle
        worker.close()

    asyncio.run(leaving())
    assert done == ["begun", "stays"]


def test_a_failure_is_the_callers_and_the_next_is_served() -> None:
    async def failing() -> None:
        worker = Worker()
        with pytest.raises(ZeroDivisionError):
            await worker.do(lambda: 1 // 0)
        assert await worker.do(lambda: 5) == 5
        worker.close()

    asyncio.run(failing())
